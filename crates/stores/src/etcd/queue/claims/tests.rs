//! Tests of claims and seats through several sessions.

use super::*;

fn election() -> Key {
    Key::parse("elections/a").expect("a good key")
}

fn ticket(candidate: u128, attempt: u64) -> Ticket {
    Ticket { candidate: CandidateId::from_bits(candidate), attempt }
}

fn someone() -> Arc<Holder> {
    let id = CandidateId::from_bits(1);
    Arc::new(Holder { id, name: "a".into(), value: Default::default(), presence: None })
}

#[tokio::test]
async fn two_candidates_of_one_election_have_two_seats_and_a_third_takes_what_was_left() {
    let claims = Claims::default();
    assert_eq!(claims.reserve(&election(), &ticket(1, 1), &someone()), None, "there is no session");
    claims.begin(1, Seat::new(10));
    let first = claims.reserve(&election(), &ticket(1, 1), &someone()).expect("a place");
    let second = claims.reserve(&election(), &ticket(2, 1), &someone()).expect("a place");
    assert_eq!(claims.seat(&first).await, Some(Seat::new(10)));
    assert_eq!(claims.leases_wanted(), 2);
    claims.add(1, &[Seat::new(20)]);
    assert_eq!(claims.seat(&second).await, Some(Seat::new(20)));
    claims.release(&election(), &ticket(1, 1).candidate, 1);
    let third = claims.reserve(&election(), &ticket(3, 1), &someone()).expect("a place");
    assert_eq!(claims.seat(&third).await, Some(Seat::new(10)));
    assert_eq!(claims.spare(), [] as [i64; 0]);
    claims.release(&election(), &ticket(2, 1).candidate, 1);
    assert_eq!(claims.spare(), [20]);
    let other = Key::parse("elections/b").expect("a good key");
    let elsewhere = claims.reserve(&other, &ticket(3, 1), &someone()).expect("a place");
    assert_eq!(claims.seat(&elsewhere).await, Some(Seat::new(10)), "one lease for all elections");
}

#[tokio::test]
async fn a_second_attempt_takes_the_place_of_the_first_whose_outcome_is_nobodys_then() {
    let claims = Claims::default();
    claims.begin(1, Seat::new(10));
    claims.reserve(&election(), &ticket(1, 1), &someone());
    assert!(claims.note(&election(), &ticket(1, 1), 1, Stage::Lost { since: Instant::now() }));
    let patience = Duration::from_secs(9);
    assert_eq!(claims.claimed(&election(), 10, patience), Some(Claimed::InDoubt));
    assert_eq!(claims.claimed(&election(), 10, Duration::ZERO), Some(Claimed::Nothing));
    let adopted = claims.note(&election(), &ticket(1, 1), 1, Stage::Standing { token: 5 });
    assert!(!adopted, "what is about to be deleted is not taken up again");
    claims.reserve(&election(), &ticket(1, 2), &someone());
    assert!(!claims.note(&election(), &ticket(1, 1), 1, Stage::Standing { token: 5 }));
    assert!(claims.note(&election(), &ticket(1, 2), 1, Stage::Standing { token: 6 }));
    assert_eq!(claims.claimed(&election(), 10, patience), Some(Claimed::Entry { token: 6 }));
    claims.gone(&election(), 10, 5);
    assert!(!claims.is_empty(), "that was another");
    claims.gone(&election(), 10, 6);
    assert!(claims.is_empty());
    assert_eq!(claims.claimed(&election(), 11, patience), None);
}

#[tokio::test]
async fn a_seat_keeps_its_name_and_its_entries_when_it_moves_to_another_lease() {
    let claims = Claims::default();
    claims.begin(1, Seat::new(10));
    claims.add(1, &[Seat::new(20)]);
    let place = claims.reserve(&election(), &ticket(1, 1), &someone()).expect("a place");
    assert!(claims.note(&election(), &ticket(1, 1), 1, Stage::Standing { token: 5 }));
    let moving = Seat { name: 10, lease: 30, former: Some(10) };
    claims.moved(2, moving);
    assert_eq!(claims.seat(&place).await, Some(Seat::new(10)), "that is another session's");
    claims.moved(1, moving);
    assert_eq!(claims.seat(&place).await, Some(moving));
    assert_eq!(claims.at(&election(), 10).map(|own| own.seat), Some(moving));
    assert!(claims.at(&election(), 30).is_none(), "nothing is called so");
    assert_eq!((claims.elections(10), claims.elections(20)), (vec![election()], vec![]));
    assert!(moving.keeps(30) && moving.keeps(10), "what has not moved yet is kept too");
    assert!(!Seat { former: None, ..moving }.keeps(10));
}

#[tokio::test]
async fn nothing_of_a_session_is_left_when_it_is_over() {
    let claims = Claims::default();
    claims.begin(1, Seat::new(10));
    let place = claims.reserve(&election(), &ticket(1, 1), &someone()).expect("a place");
    claims.over();
    assert_eq!(claims.seat(&place).await, None);
    claims.begin(2, Seat::new(11));
    assert_eq!(claims.seat(&place).await, None);
    assert!(!claims.note(&election(), &ticket(1, 1), 1, Stage::Standing { token: 5 }));
    assert!(claims.is_empty());
}
