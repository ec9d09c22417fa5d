//! The plan that spreads a supervised input among members.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure::lease::record::Op;

use super::{DocumentError, Format, MOST_NODES, MemberId, check_number, refuse};

/// The most partitions of one supervised input.
pub const MOST_PARTITIONS: usize = 1024;
/// The most bytes of a plan, as it is written.
pub const MAX_PLAN_BYTES: usize = 60 * 1024;

/// One member's partitions. Members are in the order of the node list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The member.
    pub member: MemberId,
    /// Its partitions. Only the input understands them.
    pub partitions: Vec<Value>,
}

/// The plan of one supervised input. The leader writes it, and every member follows it.
///
/// The plan only says which member should run which partition. Each partition's lease prevents it
/// from running twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The partitions of each member. Members without partitions are listed too, because the list
    /// also says for which members the plan was made.
    pub shares: Vec<Share>,
    /// Rises by one at every write, that is, with every new plan.
    pub revision: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Plan {
    /// Returns true if the plan was made for exactly these members.
    #[must_use]
    pub fn is_for<'a>(&self, members: impl Iterator<Item = &'a MemberId>) -> bool {
        self.shares.iter().map(|share| &share.member).eq(members)
    }

    /// This member's partitions, by the names of their leases.
    ///
    /// A lease's name comes from the partition's content, not from its place in the plan. So a
    /// partition that moves from one member to another keeps its lease, even if the rest of the
    /// plan changes. Equal partitions are numbered; they are interchangeable.
    #[must_use]
    pub fn share_of(&self, member: &MemberId) -> BTreeMap<String, &Value> {
        let mut repeated: BTreeMap<u128, usize> = BTreeMap::new();
        let mut own = BTreeMap::new();
        for share in &self.shares {
            for partition in &share.partitions {
                let fingerprint = fingerprint(partition);
                let count = repeated.entry(fingerprint).or_default();
                if share.member == *member {
                    own.insert(lease_name(fingerprint, *count), partition);
                }
                *count += 1;
            }
        }
        own
    }
}

impl Format for Plan {
    const WHAT: &'static str = "plan";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<Plan>("revision", self.revision)?;
        if self.shares.len() > MOST_NODES {
            return Err(refuse::<Plan>("shares", "too many"));
        }
        if self.shares.iter().map(|share| share.partitions.len()).sum::<usize>() > MOST_PARTITIONS {
            return Err(refuse::<Plan>("partitions", "too many"));
        }
        Ok(())
    }
}

fn lease_name(fingerprint: u128, count: usize) -> String {
    match count {
        0 => format!("{fingerprint:032x}"),
        _ => format!("{fingerprint:032x}-{count}"),
    }
}

/// FNV-1a in 128 bits over the value's text with sorted keys. It is the same in every build. It
/// protects no secret.
fn fingerprint(value: &Value) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut text = String::new();
    write_sorted(value, &mut text);
    text.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// Writes a value with sorted keys. serde_json keeps the order of insertion if any crate of the
/// program enables that feature.
fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_sorted(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            text.push('{');
            for (name, value) in sorted {
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_sorted(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(number: u128) -> MemberId {
        MemberId::from_bits(number)
    }

    fn plan() -> Plan {
        Plan {
            shares: vec![
                Share {
                    member: member(1),
                    partitions: vec![json!("a"), json!({"b": 1, "a": [2]})],
                },
                Share { member: member(2), partitions: vec![json!("a")] },
                Share { member: member(3), partitions: vec![] },
            ],
            revision: 7,
            op: Op::new(&member(9), 1),
        }
    }

    #[test]
    fn the_format_is_fixed() {
        let text = plan().encode();
        assert_eq!(
            std::str::from_utf8(&text).expect("text"),
            concat!(
                r#"{"shares":[{"member":"00000000000000000000000000000001","partitions":["a",{"a":[2],"b":1}]},"#,
                r#"{"member":"00000000000000000000000000000002","partitions":["a"]},"#,
                r#"{"member":"00000000000000000000000000000003","partitions":[]}],"revision":7,"#,
                r#""op":"00000000000000000000000000000009-1"}"#,
                "\n"
            )
        );
        assert_eq!(Plan::decode(&text), Ok(plan()));
    }

    #[test]
    fn the_names_of_leases_are_fixed_and_equal_partitions_have_different_ones() {
        let plan = plan();
        let names = |number| plan.share_of(&member(number)).into_keys().collect::<Vec<_>>();
        assert_eq!(
            names(1),
            ["a68c4db0ee8b5822836dbc790667a42a", "e3a0613c88bfafcf5401a45a7acd52c5"]
        );
        assert_eq!(names(2), ["a68c4db0ee8b5822836dbc790667a42a-1"]);
        assert!(names(3).is_empty());
    }

    #[test]
    fn the_order_of_keys_does_not_change_the_name_of_a_lease() {
        let (one, other) = (r#"{"x":{"p":1,"q":2},"y":0}"#, r#"{"y":0,"x":{"q":2,"p":1}}"#);
        let fingerprint = |text: &str| fingerprint(&text.parse::<Value>().expect("JSON"));
        assert_eq!(fingerprint(one), fingerprint(other));
        assert_ne!(fingerprint(r#"["a","b"]"#), fingerprint(r#"["a,b"]"#));
    }

    #[test]
    fn a_plan_of_too_many_partitions_is_refused() {
        let mut plan = plan();
        plan.shares[2].partitions = vec![json!(0); MOST_PARTITIONS - 2];
        let text = plan.encode();
        let error = Plan::decode(&text).expect_err("one too many");
        assert_eq!(error.to_string(), "the plan has a bad partitions: too many");
    }
}
