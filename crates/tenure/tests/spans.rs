//! The spans that people filter their logs by.

#[path = "support/spans.rs"]
mod support;

use support::Spans;
use tenure::{Backend, Candidate, Election};

#[tokio::test(flavor = "current_thread")]
async fn a_campaign_and_its_tenure_are_spans_with_names_and_the_token() {
    let spans = Spans::default();
    let _collecting = tracing::subscriber::set_default(spans.clone());
    let backend = Backend::memory();
    let election = Election::open(&backend, "billing/primary").await.expect("opened");
    let candidate = Candidate::new("host-a").expect("a good name");
    let leadership = election.campaign(candidate).await.expect("elected");

    let campaign = spans.only("campaign");
    assert_eq!(campaign.fields["election"], "billing/primary");
    assert_eq!(campaign.fields["candidate"], leadership.id().to_string());
    let tenure = spans.only("tenure");
    assert_eq!(tenure.parent, Some("campaign"));
    assert_eq!(tenure.fields["token"], leadership.mandate().token().to_string());
    assert!(spans.saw("tenure", "the election is won"));
    leadership.resign().await;
}
