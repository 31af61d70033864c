use super::super::{Collections, Deviation, MissingStatus, PortState, VolumeStatus};
use super::*;
use crate::config::Origin;
use crate::manage::response::GroupStatus;

fn status() -> Status {
    let volume = |number: u16| VolumeStatus {
        revision: 1 + u64::from(number),
        id: "0".repeat(32),
        name: format!("v{number}"),
        origin: Origin::Management,
        lun: number,
        size_bytes: 1 << 30,
        block_bytes: 512,
        read_only: false,
        waiting: 0,
        security: "none".into(),
    };
    let target = |label: &str, units: u16| TargetStatus {
        revision: 7,
        name: format!("iqn.2026-11.org.sanwire:{label}"),
        units: (0..units).map(|number| (number, format!("v{number}"))).collect(),
        groups: vec![GroupStatus { group: 1, state: Some(PortState::ActiveOptimized) }],
    };
    Status {
        name: "box".into(),
        revision: 7,
        collections: Collections::default(),
        deviations: vec![Deviation { resource: "volume".into(), name: "v1".into(), configured: None, now: None }; 3],
        missing: vec![MissingStatus { name: "gone".into(), reason: "its server is away".into() }],
        wires: vec!["hs-ip:127.0.0.1:5674".into()],
        volumes: (0..20).map(volume).collect(),
        targets: vec![target("none", 0), target("one", 1), target("many", 90), target("last", 2)],
        groups: Vec::new(),
    }
}

/// All pages of an answer, each in so many bytes.
fn pages(answer: &Answer, room_bytes: usize) -> Result<Vec<Answer>, Refusal> {
    let (mut pages, mut from) = (Vec::new(), 0);
    loop {
        let response = AnswerPage::response(answer.clone(), 5, from, room_bytes);
        let length = serde_json::to_vec(&response).unwrap().len();
        match response {
            Response::Done(Answer::Page(page)) => {
                assert!(length <= room_bytes, "{length} bytes where there are {room_bytes}");
                pages.push(*page.answer);
                match page.next {
                    Some(next) => from = next,
                    None => return Ok(pages),
                }
            }
            Response::Refused(refusal) => return Err(refusal),
            Response::Done(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_pages_of_an_answer_are_the_whole_whatever_the_room() {
    let whole = Answer::Status(status());
    let mut counts = Vec::new();
    for room_bytes in (900..20_000).step_by(37) {
        let mut pages = pages(&whole, room_bytes).unwrap().into_iter();
        counts.push(pages.len());
        let mut joined = pages.next().unwrap();
        assert!(pages.all(|page| joined.append(page)));
        assert_eq!(joined, whole, "{room_bytes}");
    }
    assert!(counts[0] > 10 && counts.last() == Some(&1), "{counts:?}");
}

#[test]
fn a_text_is_parted_between_its_lines() {
    let lines =
        |number: u32| format!("# HELP sanwire_v{number} \"quoted\\n\"\nsanwire_v{number}{{volume=\"a\"}} {number}\n");
    let whole = Answer::Metrics((0..300).map(lines).collect::<String>() + "# EOF\n");
    for room_bytes in (600..30_000).step_by(731) {
        let mut pages = pages(&whole, room_bytes).unwrap().into_iter();
        let mut joined = pages.next().unwrap();
        for page in pages {
            assert!(matches!(&joined, Answer::Metrics(text) if text.ends_with('\n')), "{joined:?}");
            assert!(joined.append(page));
        }
        assert_eq!(joined, whole, "{room_bytes}");
    }
}

#[test]
fn what_has_no_room_for_one_item_is_refused() {
    let refusal = pages(&Answer::Status(status()), 500).unwrap_err();
    assert_eq!(refusal.code, "answer-too-long");
}

#[test]
fn pages_of_different_states_do_not_belong_together() {
    let (mut one, other) = (Answer::Status(status()), Answer::Status(Status { revision: 8, ..status() }));
    assert!(!one.append(other) && !one.append(Answer::Sessions(Vec::new())));
    assert_eq!(one, Answer::Status(status()));
    let page = |revision| AnswerPage { answer: Box::new(Answer::Sessions(Vec::new())), next: Some(1), revision };
    assert!(page(1).append(page(1)) && !page(1).append(page(2)));
}
