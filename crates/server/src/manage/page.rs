//! Answers in pages, for who has no room for a whole one: in band there is 1 MiB, and thousands of volumes take more.
//!
//! The items of an answer's lists are numbered, one list after the other; a page has those from one number on for which there is room.
//! What is no list is in every page.

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::response::{Answer, Response, Statistics, Status, TargetStatus};

/// What a page takes besides its items, at the most.
const FRAME_BYTES: usize = 256;

/// A part of an answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AnswerPage {
    /// The answer, with some of its items.
    pub answer: Box<Answer>,
    /// From which item on the next page is; `None`: this is the last one.
    pub next: Option<usize>,
    /// That of what is listed, which rises with each item that comes, changes or goes: pages of different ones do not belong together.
    #[serde(default)]
    pub revision: u64,
}

impl AnswerPage {
    /// The page from an item on, in so many bytes of JSON; refused when there is no room for a single item.
    pub(super) fn response(mut answer: Answer, revision: u64, from: usize, room_bytes: usize) -> Response {
        let mut empty = answer.clone();
        Cut { from: usize::MAX, at: 0, room_bytes: usize::MAX, is_full: false }.answer(&mut empty);
        let mut cut = Cut { from, at: 0, room_bytes, is_full: false };
        cut.spend(length(&empty) + FRAME_BYTES);
        cut.answer(&mut answer);
        let next = cut.is_full.then_some(cut.at);
        if next.is_some_and(|next| next <= from) {
            return Response::Refused(Refusal::new("answer-too-long", "one item of the answer is too long"));
        }
        Response::Done(Answer::Page(AnswerPage { answer: Box::new(answer), next, revision }))
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
            (Answer::Clients(one), Answer::Clients(other)) => one.extend(other),
            (Answer::Jobs(one), Answer::Jobs(other)) => one.extend(other),
            (Answer::Metrics(one), Answer::Metrics(other)) => one.push_str(&other),
            _ => return false,
        }
        true
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
    from: usize,
    /// The number of the next item; of a page that is full, the first that it does not have.
    at: usize,
    room_bytes: usize,
    is_full: bool,
}

impl Cut {
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
                self.list(connections);
            }
            Answer::Sessions(list) => self.list(list),
            Answer::Clients(list) => self.list(list),
            Answer::Jobs(list) => self.list(list),
            Answer::Metrics(text) => self.lines(text),
            Answer::Events(_) | Answer::Job(_) | Answer::Changed(_) | Answer::Page(_) => {}
        }
    }

    fn list<T: Serialize>(&mut self, list: &mut Vec<T>) {
        list.retain(|item| self.takes(item));
    }

    /// Each line of a text is an item.
    fn lines(&mut self, text: &mut String) {
        *text = text.split_inclusive('\n').filter(|line| self.takes(line)).collect();
    }

    /// A target is an item without its units, each of which is another one: it may go on in the next page.
    fn targets(&mut self, targets: &mut Vec<TargetStatus>) {
        targets.retain_mut(|target| {
            let mut units = std::mem::take(&mut target.units);
            let is_new = self.takes(target);
            if !is_new && !self.is_full && self.at + units.len() > self.from {
                self.spend(length(target));
            }
            self.list(&mut units);
            target.units = units;
            is_new || !target.units.is_empty()
        });
    }

    fn takes(&mut self, item: &impl Serialize) -> bool {
        if self.is_full {
            return false;
        }
        self.at += 1;
        if self.at <= self.from {
            return false;
        }
        self.spend(length(item));
        self.at -= usize::from(self.is_full);
        !self.is_full
    }

    fn spend(&mut self, bytes: usize) {
        // With a comma.
        match self.room_bytes.checked_sub(bytes + 1) {
            Some(left) => self.room_bytes = left,
            None => self.is_full = true,
        }
    }
}

/// As JSON.
fn length(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

#[cfg(test)]
mod tests;
