//! A running feed: one half follows the table, the other stands and leads.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot, watch};

use super::event::{Event, State};
use super::leader::{Known, LeaderStore};
use super::{Shared, within};
use crate::backend::Backend;
use crate::election::leadership::{Candidacy, Leadership, Resignation};
use crate::mandate::Tenure;
use crate::status::Status;
use crate::store::feed::{Cursor, FeedStore, Item, Origin, Subscription};
use crate::store::{Fault, Reads, Store as _, StoreError};
use crate::{Election, Error};

/// The first pause after a failed subscription, and the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// An order to a started feed.
pub(super) enum Order {
    Stop,
    HandOver { to: String, done: oneshot::Sender<bool> },
}

/// The reason why a feed no longer leads.
enum Why {
    Lost,
    Deaf,
    Stop,
    HandOver { to: String, done: Option<oneshot::Sender<bool>> },
}

/// The step after a candidacy.
enum Next {
    /// Another candidacy, once the table can be followed.
    Again,
    Stop,
    Failed(Error),
}

/// The result of a time as follower.
enum Followed {
    Elected(Arc<Tenure>),
    Left(Next),
}

pub(super) struct Run {
    shared: Arc<Shared>,
    feed: Arc<dyn FeedStore>,
    store: Arc<LeaderStore>,
    private: Backend,
    election: Election,
    orders: mpsc::Receiver<Order>,
    hearing: watch::Sender<bool>,
}

impl Run {
    pub(super) fn new(
        shared: Arc<Shared>,
        feed: Arc<dyn FeedStore>,
        store: Arc<LeaderStore>,
        private: Backend,
        election: Election,
        orders: mpsc::Receiver<Order>,
        hearing: watch::Sender<bool>,
    ) -> Run {
        Run { shared, feed, store, private, election, orders, hearing }
    }

    pub(super) async fn run(self, subscription: Subscription) {
        let Run { shared, feed, store, private, election, orders, hearing } = self;
        let over = watch::Sender::new(false);
        let listener = Listener {
            shared: &shared,
            feed: &feed,
            store: &store,
            private: &private,
            hearing: &hearing,
            cursor: None,
            shown: false,
        };
        let stander = Stander {
            shared: &shared,
            store: &store,
            election,
            orders,
            hearing: hearing.subscribe(),
            known: store.known(),
            asked: store.asked(),
            told: None,
            garbled: false,
        };
        let stand = async {
            let ending = stander.stand().await;
            over.send_replace(true);
            ending
        };
        let ((), ending) = tokio::join!(listener.listen(subscription, over.subscribe()), stand);
        let leave = async {
            private.close().await;
            store.unregister().await
        };
        // Do not wait for a database that does not answer: the lease runs out, and the registration
        // grows old.
        match tokio::time::timeout(shared.timing.ttl(), leave).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the registration is left to grow old"),
            Err(_) => tracing::debug!("the database does not answer a feed that leaves"),
        }
        if let Err(error) = ending {
            shared.teller.tell(Event::HeartbeatError(error.clone()));
            shared.failure.send_replace(Some(error));
        }
    }
}

/// The half that follows the table.
struct Listener<'a> {
    shared: &'a Shared,
    feed: &'a Arc<dyn FeedStore>,
    store: &'a LeaderStore,
    private: &'a Backend,
    hearing: &'a watch::Sender<bool>,
    cursor: Option<Cursor>,
    /// True if a change of the table was shown.
    shown: bool,
}

impl Listener<'_> {
    /// Follows the table until the feed is over, and subscribes again after every failure.
    async fn listen(mut self, mut subscription: Subscription, mut over: watch::Receiver<bool>) {
        loop {
            let failed = tokio::select! {
                biased;
                // The sender lives in our caller.
                _ = over.wait_for(|over| *over) => None,
                error = self.follow(&mut subscription) => Some(error),
            };
            let Some(error) = failed else {
                let parting = self.feed.unsubscribe(subscription);
                // If the server is not told, it finds out by itself.
                let _ = tokio::time::timeout(self.shared.timing.ttl(), parting).await;
                return;
            };
            drop(subscription);
            self.hearing.send_replace(false);
            self.tell(error);
            let again = tokio::select! {
                biased;
                _ = over.wait_for(|over| *over) => return,
                again = self.subscribe_again() => again,
            };
            subscription = again;
            self.shared.teller.tell(Event::SubscribeStarted);
            self.hearing.send_replace(true);
        }
    }

    /// Takes items until the subscription fails or ends.
    async fn follow(&mut self, subscription: &mut Subscription) -> StoreError {
        while let Some(item) = subscription.next().await {
            match item {
                Ok(Item::Change { change, cursor }) => {
                    self.shown = true;
                    self.cursor = cursor.or(self.cursor.take());
                    self.shared.teller.tell(Event::Change(change));
                }
                Ok(Item::Leader(found)) => self.store.show(found),
                Ok(Item::Alive(cursor)) => self.cursor = cursor.or(self.cursor.take()),
                Err(error) => return error,
            }
            // A busy table must not keep the other half from its heartbeats.
            tokio::task::consume_budget().await;
        }
        let doing = format!("following the table {}", self.shared.table);
        StoreError::new(Fault::Unavailable, "feed", doing, "the subscription ended")
    }

    async fn subscribe_again(&mut self) -> Subscription {
        let clock = self.private.clock();
        let mut timer = clock.timer();
        let mut pause = SHORTEST_PAUSE;
        loop {
            // All feeds of a table lose it together; they need not come back together.
            let share = u32::try_from(self.private.parts().random() % 512).unwrap_or(0);
            timer.until(clock.now() + pause / 2 + pause * share / 1024).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let from = match &self.cursor {
                Some(cursor) => Origin::After(cursor.clone()),
                None if self.shared.from_start && !self.shown => Origin::Start,
                None => Origin::Now,
            };
            match within("following the table", self.feed.subscribe(&self.shared.table, from)).await
            {
                Ok(subscription) => return subscription,
                Err(error) => {
                    if error.fault == Fault::Permanent {
                        // The database may have forgotten the place. The changes since then are
                        // lost to this feed.
                        self.cursor = None;
                    }
                    self.tell(error);
                }
            }
        }
    }

    fn tell(&self, error: StoreError) {
        self.shared.teller.tell(Event::SubscribeError(Error::Store(error)));
    }
}

/// The half that stands and leads.
struct Stander<'a> {
    shared: &'a Shared,
    store: &'a LeaderStore,
    election: Election,
    orders: mpsc::Receiver<Order>,
    hearing: watch::Receiver<bool>,
    known: watch::Receiver<Option<Known>>,
    asked: watch::Receiver<Option<String>>,
    /// The leader with the highest token that was reported.
    told: Option<Known>,
    /// True if it was reported that the leader's document is invalid.
    garbled: bool,
}

impl Stander<'_> {
    /// Stands, again and again, until it is told to stop or cannot go on.
    async fn stand(mut self) -> Result<(), Error> {
        loop {
            // A deaf feed does not stand.
            while !*self.hearing.borrow_and_update() {
                tokio::select! {
                    biased;
                    order = self.orders.recv() => if refuse(order) { return Ok(()) },
                    _ = self.hearing.changed() => {}
                }
            }
            self.store.begin();
            let candidacy = self.election.stand(self.shared.candidate.clone())?;
            match self.campaign(candidacy).await {
                Next::Again => {}
                Next::Stop => return Ok(()),
                Next::Failed(error) => return Err(error),
            }
        }
    }

    /// Runs one candidacy, with as many tenures as it wins.
    async fn campaign(&mut self, mut candidacy: Candidacy) -> Next {
        let mut token = 0;
        loop {
            let tenure = match self.follow(&candidacy, token).await {
                Followed::Elected(tenure) => tenure,
                Followed::Left(next) => {
                    candidacy.withdraw().await;
                    return next;
                }
            };
            token = tenure.mandate().token();
            let leadership = candidacy.lead(tenure.clone());
            let why = self.lead(&leadership, &tenure).await;
            match why {
                Why::Lost => match leadership.stand_again() {
                    Ok(again) => {
                        candidacy = again;
                        continue;
                    }
                    Err(error) => return Next::Failed(error),
                },
                Why::Stop => {
                    leadership.resign().await;
                    return Next::Stop;
                }
                Why::Deaf => {
                    leadership.resign().await;
                    return Next::Again;
                }
                Why::HandOver { to, done } => {
                    self.store.prefer(to);
                    let released = leadership.resign().await == Resignation::Released;
                    // The caller may have gone away since.
                    let _ = done.map(|done| done.send(released));
                    return Next::Again;
                }
            }
        }
    }

    /// Follows until it is elected, or must leave.
    async fn follow(&mut self, candidacy: &Candidacy, after: u64) -> Followed {
        let mut statuses = candidacy.statuses();
        loop {
            if let Err(error) = self.tell_whom_we_follow(&candidacy.status()) {
                return Followed::Left(Next::Failed(error));
            }
            tokio::select! {
                biased;
                order = self.orders.recv() => if refuse(order) { return Followed::Left(Next::Stop) },
                _ = self.hearing.wait_for(|hearing| !*hearing) => return Followed::Left(Next::Again),
                won = candidacy.next_tenure(after) => return match won {
                    Ok(tenure) => Followed::Elected(tenure),
                    Err(error) => Followed::Left(Next::Failed(error)),
                },
                Some(_) = statuses.next() => {}
                // The sender lives in the store.
                _ = self.known.changed() => {}
            }
        }
    }

    /// Leads until there is a reason to stop, and then waits until the work has ended.
    async fn lead(&mut self, leadership: &Leadership, tenure: &Arc<Tenure>) -> Why {
        *self.shared.lock_tenure() = Some(tenure.clone());
        let token = tenure.mandate().token();
        self.shared.teller.tell(Event::NewState(State::Leader));
        self.tell_leader(&self.shared.id, Known { holder: leadership.id(), token });
        let why = self.until_over(leadership).await;
        // The work is told to stop before the change is reported. The lease is kept until the work
        // has ended.
        tenure.stop();
        self.shared.teller.tell(Event::NewState(State::Follower));
        self.shared.work.ended().await;
        *self.shared.lock_tenure() = None;
        why
    }

    async fn until_over(&mut self, leadership: &Leadership) -> Why {
        loop {
            let asked = self.asked.borrow_and_update().clone();
            if let Some(to) = asked {
                return Why::HandOver { to, done: None };
            }
            tokio::select! {
                biased;
                _ = leadership.lost() => return Why::Lost,
                order = self.orders.recv() => return match order {
                    Some(Order::HandOver { to, done }) => Why::HandOver { to, done: Some(done) },
                    Some(Order::Stop) | None => Why::Stop,
                },
                _ = self.hearing.wait_for(|hearing| !*hearing) => return Why::Deaf,
                // The sender lives in the store.
                _ = self.asked.changed() => {}
            }
        }
    }

    /// Reports the current leader.
    ///
    /// Fails when its token is at or below the token that this feed has reported of another leader:
    /// the record was deleted, or the table created anew.
    fn tell_whom_we_follow(&mut self, status: &Status) -> Result<(), Error> {
        let garbled = matches!(status.error, Some(Error::Record { .. }));
        if let Some(error) = status.error.clone().filter(|_| garbled && !self.garbled) {
            self.shared.teller.tell(Event::HeartbeatError(error));
        }
        self.garbled = garbled;
        let known = self.known.borrow_and_update().clone();
        if let (Some(leader), Some(known)) = (&status.follows, known)
            && leader.id == known.holder
        {
            if let Some(told) = self.told.as_ref().filter(|told| self.has_fallen(told, &known)) {
                return Err(Error::Regressed { found: known.token, known: told.token });
            }
            self.tell_leader(&leader.name, known);
        }
        Ok(())
    }

    /// Returns true if the token fell between the last reported leader and the one shown now.
    fn has_fallen(&self, told: &Known, shown: &Known) -> bool {
        match shown.token.cmp(&told.token) {
            // A weak read may show an earlier leader.
            Ordering::Less => self.store.reads() == Reads::Linearizable,
            // One token never has two holders.
            Ordering::Equal => shown.holder != told.holder,
            Ordering::Greater => false,
        }
    }

    fn tell_leader(&mut self, name: &str, leader: Known) {
        if self.told.as_ref().is_none_or(|told| leader.token > told.token) {
            let token = leader.token;
            // No later candidacy may lead with this token: the record may be deleted before it
            // stands.
            self.election.note_token(token);
            self.told = Some(leader);
            self.shared.teller.tell(Event::NewLeader { leader: name.to_owned(), token });
        }
    }
}

/// Returns true if the order is to stop. A feed that does not lead refuses to hand over.
fn refuse(order: Option<Order>) -> bool {
    match order {
        Some(Order::HandOver { to: _, done }) => {
            // The caller may have gone away since.
            let _ = done.send(false);
            false
        }
        Some(Order::Stop) | None => true,
    }
}
