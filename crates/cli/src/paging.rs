//! Answers of a server that are too long for one message.

use sanwire_server::{Answer, AnswerPage, Request, Response};

use crate::administration::answer_of;

/// How often an answer is read in pages, at the most, when the server changes meanwhile.
const ATTEMPTS: u32 = 8;

/// Asks for an answer that is too long as a whole, page by page; anew when the server has changed between two of them.
///
/// # Errors
/// Why it was refused, or that the server changes all the while.
pub(crate) fn in_pages(
    request: &Request,
    ask: impl Fn(&Request) -> anyhow::Result<Response>,
) -> anyhow::Result<Answer> {
    for _ in 0..ATTEMPTS {
        if let Some(answer) = all_pages(request, &ask)? {
            return Ok(answer);
        }
    }
    anyhow::bail!("the server changes faster than its answer can be read: ask again")
}

/// `None` when the pages do not belong together.
fn all_pages(request: &Request, ask: &impl Fn(&Request) -> anyhow::Result<Response>) -> anyhow::Result<Option<Answer>> {
    let (mut whole, mut from) = (None::<AnswerPage>, 0);
    loop {
        let Answer::Page(page) = answer_of(ask(&Request::Page { request: request.clone().into(), from })?)? else {
            anyhow::bail!("the server has not answered with a page");
        };
        let next = page.next;
        match &mut whole {
            None => whole = Some(page),
            Some(whole) => {
                if !whole.append(page) {
                    return Ok(None);
                }
            }
        }
        match next {
            None => return Ok(whole.map(|whole| *whole.answer)),
            Some(next) if next > from => from = next,
            Some(_) => anyhow::bail!("the server gives the same page again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use sanwire_server::{Collections, MissingStatus, Status};

    use super::*;

    /// A server of two volumes, which are missing; it changes after its first answer.
    fn page_of_missing(asked: usize, from: u64) -> Response {
        let missing = MissingStatus { name: format!("v{from}"), reason: "away".into() };
        let status = Status {
            run: Box::default(),
            name: "box".into(),
            wires: Vec::new(),
            revision: 1,
            collections: Collections::default(),
            deviations: Vec::new(),
            missing: vec![missing],
            volumes: Vec::new(),
            targets: Vec::new(),
            groups: Vec::new(),
        };
        let next = (from == 0).then_some(1);
        Response::Done(Answer::Page(AnswerPage {
            answer: Box::new(Answer::Status(status)),
            next,
            revision: asked.min(1) as u64,
        }))
    }

    #[test]
    fn an_answer_in_pages_is_read_anew_when_the_server_has_changed_meanwhile() {
        let asked = Cell::new(0);
        let ask = |request: &Request| match request {
            Request::Page { request, from } if **request == Request::Status => {
                Ok(page_of_missing(asked.replace(asked.get() + 1), *from))
            }
            other => panic!("{other:?}"),
        };
        let Answer::Status(status) = in_pages(&Request::Status, ask).unwrap() else { panic!("no status") };
        let names: Vec<_> = status.missing.iter().map(|missing| missing.name.as_str()).collect();
        assert_eq!((names, asked.get()), (vec!["v0", "v1"], 4));
    }

    #[test]
    fn a_server_that_gives_one_page_for_ever_is_not_asked_for_ever() {
        let refusal = in_pages(&Request::Status, |_| Ok(page_of_missing(1, 0))).unwrap_err();
        assert!(refusal.to_string().contains("the same page again"), "{refusal}");
    }
}
