//! Assigns partitions to members: evenly by workers, with as few moves as possible.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::documents::{NodeEntry, Plan, Share};

/// Shares partitions out among these members. A member keeps the partitions it has, up to its even
/// share.
pub(super) fn spread(
    members: &[NodeEntry],
    partitions: Vec<Value>,
    before: Option<&Plan>,
) -> Vec<Share> {
    let mut left = Pool::new(partitions);
    let held: Vec<&[Value]> = members.iter().map(|member| held_by(before, member)).collect();
    let counts: Vec<usize> = held.iter().map(|held| left.count_of(held)).collect();
    let quotas = quotas(members, left.len(), &counts);

    let mut shares: Vec<Vec<Value>> = Vec::with_capacity(members.len());
    for (held, quota) in held.iter().zip(&quotas) {
        shares.push(held.iter().filter_map(|kept| left.take(kept)).take(*quota).collect());
    }
    let mut rest = left.into_rest();
    for (share, quota) in shares.iter_mut().zip(quotas) {
        let room = quota - share.len();
        share.extend(rest.by_ref().take(room));
    }
    let members = members.iter().map(|member| member.token.clone());
    members.zip(shares).map(|(member, partitions)| Share { member, partitions }).collect()
}

fn held_by<'a>(before: Option<&'a Plan>, member: &NodeEntry) -> &'a [Value] {
    let shares = before.map_or(&[][..], |plan| &plan.shares);
    let share = shares.iter().find(|share| share.member == member.token);
    share.map_or(&[][..], |share| &share.partitions)
}

/// How many partitions each member gets: its share by workers, rounded down. The members that lose
/// most by the rounding get one more.
fn quotas(members: &[NodeEntry], partitions: usize, held: &[usize]) -> Vec<usize> {
    let all: usize = members.iter().map(|member| member.workers as usize).sum();
    // If no member has workers, all count the same: they can still run inputs.
    let weight = |member: &NodeEntry| if all == 0 { 1 } else { member.workers as usize };
    let all = if all == 0 { members.len() } else { all };
    if all == 0 {
        return Vec::new();
    }
    let mut quotas: Vec<usize> =
        members.iter().map(|member| partitions * weight(member) / all).collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    // Among equals, prefer the member that has more already: a partition that stays is not stopped.
    order.sort_by_key(|&index| {
        let lost = partitions * weight(&members[index]) % all;
        std::cmp::Reverse((lost, held[index]))
    });
    let given: usize = quotas.iter().sum();
    for &index in order.iter().take(partitions - given) {
        quotas[index] += 1;
    }
    quotas
}

/// Partitions not assigned yet, in their order. Equal ones are interchangeable.
struct Pool {
    partitions: Vec<Option<Value>>,
    /// The places of the partitions with this text, the first place last.
    places: BTreeMap<String, Vec<usize>>,
}

impl Pool {
    fn new(partitions: Vec<Value>) -> Pool {
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, partition) in partitions.iter().enumerate().rev() {
            places.entry(partition.to_string()).or_default().push(place);
        }
        Pool { partitions: partitions.into_iter().map(Some).collect(), places }
    }

    fn len(&self) -> usize {
        self.partitions.len()
    }

    /// How many of these partitions still exist.
    fn count_of(&self, held: &[Value]) -> usize {
        held.iter().filter(|held| self.places.contains_key(&held.to_string())).count()
    }

    fn take(&mut self, partition: &Value) -> Option<Value> {
        let place = self.places.get_mut(&partition.to_string())?.pop()?;
        self.partitions[place].take()
    }

    fn into_rest(self) -> impl Iterator<Item = Value> {
        self.partitions.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::documents::MemberId;
    use tenure::lease::record::Op;

    fn members(workers: &[u32]) -> Vec<NodeEntry> {
        let member = |(index, &workers): (usize, &u32)| NodeEntry {
            token: MemberId::from_bits(index as u128),
            workers,
            name: String::new(),
            draining: false,
        };
        workers.iter().enumerate().map(member).collect()
    }

    fn numbers(count: usize) -> Vec<Value> {
        (0..count).map(|number| json!(number)).collect()
    }

    fn counts(shares: &[Share]) -> Vec<usize> {
        shares.iter().map(|share| share.partitions.len()).collect()
    }

    fn plan(shares: Vec<Share>) -> Plan {
        Plan { shares, revision: 1, op: Op::new(&MemberId::from_bits(0), 1) }
    }

    #[test]
    fn partitions_are_spread_evenly_by_workers() {
        for (workers, partitions, expected) in [
            (&[1, 1, 1][..], 12, vec![4, 4, 4]),
            (&[5, 3], 16, vec![10, 6]),
            (&[1, 1, 1], 4, vec![2, 1, 1]),
            (&[1, 1, 1], 2, vec![1, 1, 0]),
            (&[7, 1], 3, vec![3, 0]),
            (&[0, 0], 3, vec![2, 1]),
            (&[0, 2], 3, vec![0, 3]),
            (&[4], 0, vec![0]),
            (&[], 0, vec![]),
        ] {
            let shares = spread(&members(workers), numbers(partitions), None);
            assert_eq!(counts(&shares), expected, "{workers:?} {partitions}");
            let mut all: Vec<Value> =
                shares.into_iter().flat_map(|share| share.partitions).collect();
            all.sort_by_key(|value| value.as_u64());
            assert_eq!(all, numbers(if workers.is_empty() { 0 } else { partitions }));
        }
    }

    #[test]
    fn a_newcomer_takes_its_part_and_nothing_else_moves() {
        let before = plan(spread(&members(&[1, 1]), numbers(9), None));
        let after = spread(&members(&[1, 1, 1]), numbers(9), Some(&before));
        assert_eq!(counts(&after), [3, 3, 3]);
        for (before, after) in before.shares.iter().zip(&after) {
            assert!(after.partitions.iter().all(|kept| before.partitions.contains(kept)));
        }
    }

    #[test]
    fn those_of_a_member_that_left_go_to_the_others_and_theirs_stay() {
        let three = members(&[1, 1, 1]);
        let before = plan(spread(&three, numbers(7), None));
        let after = spread(&three[1..], numbers(7), Some(&before));
        assert_eq!(counts(&after), [4, 3]);
        for (before, after) in before.shares[1..].iter().zip(&after) {
            assert!(before.partitions.iter().all(|kept| after.partitions.contains(kept)));
        }
    }

    #[test]
    fn equal_partitions_are_shared_out_like_others() {
        let two = members(&[1, 1]);
        let before = plan(spread(&two, vec![json!(null); 5], None));
        assert_eq!(counts(&before.shares), [3, 2]);
        let after = spread(&two[1..], vec![json!(null); 4], Some(&before));
        assert_eq!(counts(&after), [4]);
    }

    #[test]
    fn partitions_that_are_no_more_are_dropped() {
        let two = members(&[1, 1]);
        let before = plan(spread(&two, numbers(10), None));
        let after = spread(&two, numbers(3), Some(&before));
        assert_eq!(counts(&after).iter().sum::<usize>(), 3);
    }
}
