//! Requests to manage the server that come in band, and what is to be written down: from those who serve to the one thread that works
//! on them.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::quota::{
    ATTEMPTS_WAITING, Account, MANAGEMENT_OF_CLIENT, MANAGEMENT_WAITING, OFFENCES_WAITING, Quota, REFUSALS_WAITING,
    Usage,
};
use sanwire_core::{ClientId, Principal};

use crate::command::CommandRef;
use crate::front::Offence;
use crate::messages::Mailbox;

/// Something for the thread that manages.
pub(crate) struct QueuedRequest {
    /// As far as it is known.
    pub(crate) client: Option<ClientId>,
    /// From where.
    pub(crate) address: String,
    pub(crate) content: Content,
}

/// What a client wants.
pub(crate) enum Content {
    /// A request, and where its answer is awaited.
    Request {
        json: Vec<u8>,
        room_bytes: u32,
        request: CommandRef,
        home: Mailbox,
        /// Who it is to its volumes, if it may not manage the server and only owns some.
        as_owner: Option<Principal>,
    },
    /// It may not manage the server; it was told so.
    Attempt,
    /// This was refused, so many times.
    Refused(Offence, u64),
}

/// How many letters of each sort wait.
#[derive(Debug)]
struct Waiting {
    requests: Mutex<Sort>,
    attempts: Mutex<Sort>,
    /// Of clients that have shown who they are: what strangers do takes no place of theirs.
    refusals: Mutex<Sort>,
    offences: Mutex<Sort>,
}

#[derive(Debug)]
struct Sort {
    waiting: u64,
    account: Account,
    /// Those of each client, where none may have all places.
    shares: Option<Shares>,
}

#[derive(Debug)]
struct Shares {
    account: Account,
    waiting: BTreeMap<Option<ClientId>, u64>,
}

/// The shards' end.
#[derive(Clone, Debug)]
pub(crate) struct ManagementQueue {
    sender: Sender<QueuedRequest>,
    waiting: Arc<Waiting>,
}

/// How full it is. It does not keep the thread waiting that manages, as an [`ManagementQueue`] does.
#[derive(Debug)]
pub(crate) struct InboxUsage(Arc<Waiting>);

impl InboxUsage {
    pub(crate) fn usages(&self) -> Vec<Usage> {
        let Waiting { requests, attempts, refusals, offences } = &*self.0;
        [requests, attempts, refusals, offences].into_iter().flat_map(|sort| lock(sort).usages()).collect()
    }
}

/// The end of the thread that manages.
#[derive(Debug)]
pub(crate) struct Letters {
    receiver: Receiver<QueuedRequest>,
    waiting: Arc<Waiting>,
}

impl ManagementQueue {
    pub(crate) fn new() -> (ManagementQueue, Letters) {
        let (sender, receiver) = mpsc::channel();
        let waiting = Arc::new(Waiting::default());
        (ManagementQueue { sender, waiting: Arc::clone(&waiting) }, Letters { receiver, waiting })
    }

    /// `false`, and nothing done, when too many wait already, or nobody manages.
    pub(crate) fn put(&self, letter: QueuedRequest) -> bool {
        let may_wait = self.waiting.of(&letter).admits(letter.client);
        may_wait && self.sender.send(letter).is_ok()
    }

    /// For who wants to know how its quotas are used.
    pub(crate) fn usage(&self) -> InboxUsage {
        InboxUsage(Arc::clone(&self.waiting))
    }
}

impl Letters {
    /// The next one; `None` when all shards have ended.
    pub(crate) fn next(&self) -> Option<QueuedRequest> {
        let letter = self.receiver.recv().ok()?;
        self.waiting.of(&letter).leaves(letter.client);
        Some(letter)
    }
}

impl Default for Waiting {
    fn default() -> Self {
        let sort = |quota| Mutex::new(Sort::new(quota));
        let [attempts, refusals, offences] = [&ATTEMPTS_WAITING, &REFUSALS_WAITING, &OFFENCES_WAITING].map(sort);
        Waiting { requests: Mutex::new(Sort::of_requests()), attempts, refusals, offences }
    }
}

impl Waiting {
    fn of(&self, letter: &QueuedRequest) -> MutexGuard<'_, Sort> {
        lock(match &letter.content {
            Content::Request { .. } => &self.requests,
            Content::Attempt => &self.attempts,
            Content::Refused(Offence { is_proven: true, .. }, _) => &self.refusals,
            Content::Refused(..) => &self.offences,
        })
    }
}

impl Sort {
    fn new(quota: &'static Quota) -> Self {
        Sort { waiting: 0, account: Account::new(quota), shares: None }
    }

    fn of_requests() -> Self {
        let shares = Shares { account: Account::new(&MANAGEMENT_OF_CLIENT), waiting: BTreeMap::new() };
        Sort { shares: Some(shares), ..Sort::new(&MANAGEMENT_WAITING) }
    }

    /// Whether one more of this client may wait; then it does.
    fn admits(&mut self, client: Option<ClientId>) -> bool {
        let Sort { waiting, account, shares } = self;
        let may_wait = shares.as_mut().is_none_or(|shares| shares.admits(client)) && account.admits(*waiting, 1);
        if may_wait {
            *waiting += 1;
            if let Some(shares) = shares {
                *shares.waiting.entry(client).or_default() += 1;
            }
        }
        may_wait
    }

    fn leaves(&mut self, client: Option<ClientId>) {
        self.waiting -= 1;
        if let Some(shares) = &mut self.shares {
            shares.waiting.retain(|other, waiting| {
                *waiting -= u64::from(*other == client);
                *waiting > 0
            });
        }
    }

    fn usages(&self) -> impl Iterator<Item = Usage> + use<> {
        let of_client = self.shares.as_ref().map(|shares| shares.account.usage());
        of_client.into_iter().chain([self.account.usage()])
    }
}

impl Shares {
    fn admits(&mut self, client: Option<ClientId>) -> bool {
        self.account.admits(self.waiting.get(&client).copied().unwrap_or_default(), 1)
    }
}

fn lock(sort: &Mutex<Sort>) -> MutexGuard<'_, Sort> {
    // It is changed by single assignments.
    sort.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> QueuedRequest {
        QueuedRequest { client: Some(ClientId([1; 16])), address: "127.0.0.1:1".into(), content: Content::Attempt }
    }

    fn refused(is_proven: bool) -> Content {
        Content::Refused(Offence { what: "no".into(), is_proven }, 1)
    }

    #[test]
    fn what_is_refused_and_waits_is_bounded_by_its_sort() {
        let (inbox, _letters) = ManagementQueue::new();
        let logins = || QueuedRequest { content: refused(false), ..attempt() };
        let taken = (0..1000).filter(|_| inbox.put(logins())).count();
        assert!(inbox.put(attempt()), "another sort");
        let usages = inbox.usage().usages().into_iter();
        let of = |quota| usages.clone().find(|usage| usage.quota == quota).map(|usage| (usage.most, usage.refused));
        assert_eq!(of(&ATTEMPTS_WAITING), Some((Some(1), 0)));
        assert_eq!(of(&OFFENCES_WAITING), Some((Some(64), 936)));
        assert_eq!(taken as u64, OFFENCES_WAITING.limit);
    }

    #[test]
    fn what_strangers_do_leaves_room_for_what_clients_are_refused() {
        let (inbox, _letters) = ManagementQueue::new();
        let put = |is_proven| inbox.put(QueuedRequest { content: refused(is_proven), ..attempt() });
        let taken = |is_proven| (0..1000).filter(|_| put(is_proven)).count() as u64;
        assert_eq!(taken(false), OFFENCES_WAITING.limit);
        assert_eq!(taken(true), REFUSALS_WAITING.limit);
    }

    #[test]
    fn requests_that_wait_are_bounded() {
        let mut requests = Sort::of_requests();
        let admitted = (0..100).filter(|number| requests.admits(Some(ClientId([*number; 16])))).count();
        assert_eq!(admitted as u64, MANAGEMENT_WAITING.limit);
    }

    #[test]
    fn a_client_that_asks_without_waiting_leaves_others_room_to_ask() {
        let [greedy, other] = [1, 2].map(|number| Some(ClientId([number; 16])));
        let mut requests = Sort::of_requests();
        let admitted = (0..1000).filter(|_| requests.admits(greedy)).count();
        assert_eq!(admitted as u64, MANAGEMENT_OF_CLIENT.limit);
        assert!(requests.admits(other));
        requests.leaves(greedy);
        assert!(requests.admits(greedy) && !requests.admits(greedy), "a place is free again");
        (0..8).for_each(|_| requests.leaves(greedy));
        requests.leaves(other);
        let is_empty = |shares: &Shares| shares.waiting.is_empty();
        assert!(requests.waiting == 0 && requests.shares.as_ref().is_some_and(is_empty), "nothing is kept of who left");
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let (inbox, letters) = ManagementQueue::new();
        let taken = (0..1000).filter(|_| inbox.put(attempt())).count();
        assert_eq!(taken as u64, ATTEMPTS_WAITING.limit);
        assert!(letters.next().is_some() && inbox.put(attempt()) && !inbox.put(attempt()));
        drop(inbox);
        assert_eq!(
            std::iter::from_fn(|| letters.next()).count() as u64,
            ATTEMPTS_WAITING.limit,
            "what waits is not lost"
        );
    }

    #[test]
    fn where_nobody_manages_nothing_is_taken() {
        let (inbox, letters) = ManagementQueue::new();
        drop(letters);
        assert!(!inbox.put(attempt()));
    }
}
