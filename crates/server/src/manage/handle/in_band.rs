//! What clients ask in band.

use std::sync::{Arc, Weak};
use std::thread;

use super::{Desk, ManagementHandle, no_thread};
use crate::front::Offence;
use crate::manage::{Asker, Refusal, Response};
use crate::management_queue::{Content, Letters, QueuedRequest};
use crate::messages::ShardMessage;

/// Requests of clients that are worked on at a time, beside one that takes no time.
const WORKERS_MAX: usize = 64;

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
                if Arc::strong_count(&desk.0.workers) > WORKERS_MAX {
                    refuse(Response::Refused(Refusal::new("busy", "too many requests are being done: ask again")));
                    continue;
                }
                let worker = Arc::clone(&desk.0.workers);
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
