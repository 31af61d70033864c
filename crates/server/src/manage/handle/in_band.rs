//! What clients ask in band.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use sanwire_core::ClientId;

use super::{Desk, ManagementHandle, no_thread};
use crate::front::Offence;
use crate::manage::{Asker, Refusal, Response};
use crate::management_queue::{Content, Letters, QueuedRequest};
use crate::messages::ShardMessage;

/// Requests of clients that are worked on at a time.
const WORKERS_MAX: usize = 64;

/// Those of clients that only own volumes, and of one of them: the others are left to who manages the server.
const OF_OWNERS_MAX: usize = WORKERS_MAX / 2;
const OF_OWNER_MAX: usize = 4;

/// The requests that are being worked on.
#[derive(Clone, Default)]
pub(super) struct Workers(Arc<Mutex<Vec<Option<ClientId>>>>);

/// One of them, until this is dropped.
struct Worker {
    all: Workers,
    owner: Option<ClientId>,
}

impl Workers {
    /// Begins with one; `owner`: of a client that only owns volumes. `None` when there are as many as there may be.
    fn begin(&self, owner: Option<ClientId>) -> Option<Worker> {
        let mut working = self.lock();
        let of_owners = working.iter().flatten();
        let of_owner = of_owners.clone().filter(|other| Some(**other) == owner).count();
        let is_one_too_many = owner.is_some() && (of_owner >= OF_OWNER_MAX || of_owners.count() >= OF_OWNERS_MAX);
        if is_one_too_many || working.len() >= WORKERS_MAX {
            return None;
        }
        working.push(owner);
        Some(Worker { all: self.clone(), owner })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<ClientId>>> {
        // It is whole between any two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut working = self.all.lock();
        if let Some(at) = working.iter().position(|other| *other == self.owner) {
            working.swap_remove(at);
        }
    }
}

/// Does what clients ask in band: each request on a thread of its own, so that none waits for another.
pub(super) fn work(letters: &Letters, desk: &Weak<Desk>) {
    while let Some(letter) = letters.next() {
        let Some(desk) = desk.upgrade().map(ManagementHandle) else { return };
        let QueuedRequest { client, address, content } = letter;
        let as_owner = match &content {
            Content::Request { as_owner, .. } => as_owner.clone(),
            Content::Attempt | Content::Refused(..) => None,
        };
        let by = match client {
            Some(client) => Asker::Client { client, address, as_owner },
            None => Asker::Stranger { address },
        };
        match content {
            Content::Attempt => desk.note_attempt(&by),
            Content::Refused(Offence { what, is_proven }, count) => desk.note_offence(&by, &what, is_proven, count),
            Content::Request { json, room_bytes, request, home, as_owner: _ } => {
                let answer = move |response: Response| {
                    home.send(ShardMessage::Administered(request, response.to_json(room_bytes)));
                };
                let refuse = answer.clone();
                let Some(worker) = desk.0.workers.begin(by.owning_client()) else {
                    refuse(Response::Refused(Refusal::new("busy", "too many requests are being done: ask again")));
                    continue;
                };
                let work = move || {
                    let _worker = worker;
                    answer(desk.handle_json_within(&by, &json, room_bytes as usize));
                };
                if let Err(error) = thread::Builder::new().name("management".into()).spawn(work) {
                    refuse(Response::Refused(no_thread(&error)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_leave_workers_to_who_manages_the_server() {
        let workers = Workers::default();
        let owner = |client: u8| Some(ClientId([client; 16]));
        let mut working: Vec<Worker> = (0..OF_OWNER_MAX).filter_map(|_| workers.begin(owner(1))).collect();
        assert!(working.len() == OF_OWNER_MAX && workers.begin(owner(1)).is_none());
        working.extend((0..OF_OWNERS_MAX).filter_map(|at| workers.begin(owner(2 + at as u8))));
        assert_eq!(working.len(), OF_OWNERS_MAX, "of all of them together");
        working.extend(std::iter::from_fn(|| workers.begin(None)));
        assert_eq!(working.len(), WORKERS_MAX);
        drop(working);
        assert!(workers.begin(owner(1)).is_some());
    }
}
