//! Answers in pages, for who has no room for a whole one: in band there is 1 MiB, and thousands of volumes take more.
//!
//! The items of an answer are numbered; a page has those from one number on for which there is room. What is no list is in every page.
//! Sessions and metrics have numbers of their own, which stay the same whatever comes and goes between two pages: so they can be read
//! while clients log in all the time. Other lists are numbered one after the other, and change seldom.

use serde::{Deserialize, Serialize};

use super::configuration::ConfigurationStatus;
use super::refusal::Refusal;
use super::response::{Answer, Response, Statistics, Status, TargetStatus};
use crate::sessions::SessionStatus;

/// What a page takes besides its items, at the most.
const FRAME_BYTES: usize = 256;

/// Connections stand behind all volumes, by the places of their sessions.
const CONNECTIONS_FIRST: u64 = 1 << 46;

/// A part of an answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AnswerPage {
    /// The answer, with some of its items.
    pub answer: Box<Answer>,
    /// From which item on the next page is; `None`: this is the last one.
    pub next: Option<u64>,
    /// That of what is listed in the order of its places, which rises with each item that comes, changes or goes: pages of different ones
    /// do not belong together. Sessions have the same one in all of a run.
    #[serde(default)]
    pub revision: u64,
}

impl AnswerPage {
    /// The page from an item on, in so many bytes of JSON; refused when there is no room for a single item.
    pub(super) fn response(mut answer: Answer, revision: u64, from: u64, room_bytes: usize) -> Response {
        let mut empty = answer.clone();
        Cut::new(u64::MAX, usize::MAX).answer(&mut empty);
        let mut cut = Cut::new(from, room_bytes);
        if !cut.spend(length(&empty) + FRAME_BYTES) {
            cut.next = Some(from);
        }
        cut.answer(&mut answer);
        if cut.next.is_some_and(|next| next <= from) {
            return Response::Refused(Refusal::new("answer-too-long", "one item of the answer is too long"));
        }
        Response::Done(Answer::Page(AnswerPage { answer: Box::new(answer), next: cut.next, revision }))
    }
}

impl AnswerPage {
    /// Takes in the next page. `false` when it is of another state of the server: then the pages do not belong together.
    pub fn append(&mut self, next: AnswerPage) -> bool {
        self.next = next.next;
        self.revision == next.revision && self.answer.append(*next.answer)
    }
}

impl Answer {
    fn append(&mut self, next: Answer) -> bool {
        match (self, next) {
            (Answer::Status(one), Answer::Status(other)) if one.revision == other.revision => one.append(other),
            (Answer::Statistics(one), Answer::Statistics(other)) => {
                one.volumes.extend(other.volumes);
                one.connections.extend(other.connections);
            }
            (Answer::Sessions(one), Answer::Sessions(other)) => one.extend(other),
            (Answer::ConfigurationFile(one), Answer::ConfigurationFile(other)) => one.extend(other),
            (Answer::Commands(one), Answer::Commands(other)) => one.extend(other),
            (Answer::Clients(one), Answer::Clients(other)) => one.extend(other),
            (Answer::Links(one), Answer::Links(other)) => one.extend(other),
            (Answer::Configuration(one), Answer::Configuration(other)) => one.append(*other),
            (Answer::Reservations(one), Answer::Reservations(other)) => one.registrants.extend(other.registrants),
            (Answer::Jobs(one), Answer::Jobs(other)) => one.extend(other),
            (Answer::Pools(one), Answer::Pools(other)) => one.extend(other),
            (Answer::Snapshots(one), Answer::Snapshots(other)) => one.extend(other),
            (Answer::Dvds(one), Answer::Dvds(other)) => one.extend(other),
            (Answer::Dvd(one), Answer::Dvd(other)) => one.used_by.extend(other.used_by),
            (Answer::Metrics(one), Answer::Metrics(other)) => one.append(other),
            _ => return false,
        }
        true
    }
}

impl ConfigurationStatus {
    fn append(&mut self, other: ConfigurationStatus) {
        let ConfigurationStatus { volumes, targets, clients, deviations, .. } = other;
        self.volumes.extend(volumes);
        self.targets.extend(targets);
        self.clients.extend(clients);
        self.deviations.extend(deviations);
    }
}

impl Status {
    fn append(&mut self, other: Status) {
        let Status { deviations, missing, volumes, targets, .. } = other;
        self.deviations.extend(deviations);
        self.missing.extend(missing);
        self.volumes.extend(volumes);
        for target in targets {
            match self.targets.last_mut().filter(|last| last.name == target.name) {
                Some(begun) => begun.units.extend(target.units),
                None => self.targets.push(target),
            }
        }
    }
}

/// Goes through the items of an answer, and leaves those of one page.
struct Cut {
    from: u64,
    /// The number of the next item of a list whose items have none of their own.
    at: u64,
    room_bytes: usize,
    /// Of a page that is full, the first item that it does not have.
    next: Option<u64>,
}

impl Cut {
    fn new(from: u64, room_bytes: usize) -> Self {
        Cut { from, at: 0, room_bytes, next: None }
    }

    fn answer(&mut self, answer: &mut Answer) {
        match answer {
            Answer::Status(Status { deviations, missing, volumes, targets, .. }) => {
                self.list(deviations);
                self.list(missing);
                self.list(volumes);
                self.targets(targets);
            }
            Answer::Statistics(Statistics { volumes, connections, .. }) => {
                self.list(volumes);
                self.numbered(connections, |connection| CONNECTIONS_FIRST + connection.page_place());
            }
            Answer::Sessions(list) => self.numbered(list, SessionStatus::page_place),
            Answer::ConfigurationFile(list) => self.list(list),
            Answer::Commands(list) => self.list(list),
            Answer::Clients(list) => self.list(list),
            Answer::Links(list) => self.list(list),
            Answer::Configuration(configuration) => {
                let ConfigurationStatus { volumes, targets, clients, deviations, .. } = &mut **configuration;
                self.list(volumes);
                self.list(targets);
                self.list(clients);
                self.list(deviations);
            }
            Answer::Reservations(reservations) => self.list(&mut reservations.registrants),
            Answer::Jobs(list) => self.list(list),
            Answer::Pools(list) => self.list(list),
            Answer::Snapshots(list) => self.list(list),
            Answer::Dvds(list) => self.list(list),
            Answer::Dvd(dvd) => self.list(&mut dvd.used_by),
            Answer::Metrics(metrics) => {
                metrics.items().for_each(|(number, item)| _ = self.takes(number, &item));
                metrics.keep(self.from, self.next.unwrap_or(u64::MAX));
            }
            Answer::Events(_)
            | Answer::Audit(_)
            | Answer::Job(_)
            | Answer::CopyTerms(_)
            | Answer::Link(_)
            | Answer::Changed(_)
            | Answer::Page(_) => {}
        }
    }

    fn list<T: Serialize>(&mut self, list: &mut Vec<T>) {
        list.retain(|item| self.takes_next(item));
    }

    /// A list of items with numbers, ascending; those with the same one are in one page.
    fn numbered<T: Serialize>(&mut self, list: &mut Vec<T>, number: impl Fn(&T) -> u64) {
        list.retain(|item| self.takes(number(item), item));
        if let Some(next) = self.next {
            list.retain(|item| number(item) < next);
        }
    }

    /// A target is an item without its units, each of which is another one: it may go on in the next page.
    fn targets(&mut self, targets: &mut Vec<TargetStatus>) {
        targets.retain_mut(|target| {
            let mut units = std::mem::take(&mut target.units);
            let is_new = self.takes_next(target);
            let goes_on = !is_new && self.next.is_none() && self.at + units.len() as u64 > self.from;
            if goes_on && !self.spend(length(target)) {
                self.next = Some(self.from);
            }
            self.list(&mut units);
            target.units = units;
            is_new || !target.units.is_empty()
        });
    }

    fn takes_next(&mut self, item: &impl Serialize) -> bool {
        self.at += 1;
        self.takes(self.at - 1, item)
    }

    fn takes(&mut self, number: u64, item: &impl Serialize) -> bool {
        if self.next.is_some() || number < self.from {
            return false;
        }
        let has_room = self.spend(length(item));
        self.next = (!has_room).then_some(number);
        has_room
    }

    /// Whether there is room for so many bytes, and a comma.
    fn spend(&mut self, bytes: usize) -> bool {
        let left = self.room_bytes.checked_sub(bytes + 1);
        self.room_bytes = left.unwrap_or(0);
        left.is_some()
    }
}

/// As JSON.
fn length(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

#[cfg(test)]
mod tests;
