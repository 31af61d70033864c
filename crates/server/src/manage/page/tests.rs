use super::super::metrics::MetricsText;
use super::super::{Collections, Deviation, MissingStatus, PortState, VolumeStatus};
use super::*;
use crate::config::Origin;
use crate::manage::response::GroupStatus;

fn status() -> Status {
    let volume = |number: u16| VolumeStatus {
        store: String::new(),
        used_bytes: None,
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
        protected: false,
        pool: None,
        owners: Vec::new(),
        derived: None,
        missing: None,
    };
    let target = |label: &str, units: u16| TargetStatus {
        revision: 7,
        name: format!("iqn.2026-11.org.sanwire:{label}"),
        terms: Default::default(),
        units: (0..units).map(|number| (number, format!("v{number}"))).collect(),
        groups: vec![GroupStatus { group: 1, state: Some(PortState::ActiveOptimized) }],
    };
    Status {
        run: Box::default(),
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
    for room_bytes in (1_200..20_000).step_by(37) {
        let mut pages = pages(&whole, room_bytes).unwrap().into_iter();
        counts.push(pages.len());
        let mut joined = pages.next().unwrap();
        assert!(pages.all(|page| joined.append(page)));
        assert_eq!(joined, whole, "{room_bytes}");
    }
    assert!(counts[0] > 5 && counts.last() == Some(&1), "{counts:?}");
}

#[test]
fn a_text_is_parted_between_its_lines() {
    let lines =
        |number: u32| format!("# HELP sanwire_v{number} \"quoted\\n\"\nsanwire_v{number}{{volume=\"a\"}} {number}\n");
    let items = (0..300).map(|number| (3 * u64::from(number), lines(number))).chain([(2000, "# EOF\n".to_owned())]);
    let whole = Answer::Metrics(MetricsText::with(items));
    for room_bytes in (600..30_000).step_by(731) {
        let mut pages = pages(&whole, room_bytes).unwrap().into_iter();
        let mut joined = pages.next().unwrap();
        for page in pages {
            assert!(matches!(&joined, Answer::Metrics(text) if text.as_str().ends_with('\n')), "{joined:?}");
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

/// Reads an answer page by page, while it changes between any two of them.
fn read_meanwhile(mut answer: impl FnMut() -> Answer, room_bytes: usize) -> (Answer, usize) {
    let (mut whole, mut from, mut pages) = (None::<AnswerPage>, 0, 0);
    loop {
        let Response::Done(Answer::Page(page)) = AnswerPage::response(answer(), 0, from, room_bytes) else {
            panic!("no page from {from} on")
        };
        pages += 1;
        let next = page.next;
        match &mut whole {
            None => whole = Some(page),
            Some(whole) => assert!(whole.append(page)),
        }
        match next {
            Some(next) => from = next,
            None => return (*whole.unwrap().answer, pages),
        }
    }
}

/// Sessions of both kinds of wires, by the counters of their numbers. With each look one begins, and one has ended.
#[derive(Default)]
struct Changing {
    looks: u64,
}

impl Changing {
    const STAYING: u64 = 60;
    /// That of sessions over connections.
    const STREAMS: u64 = 1 << 63;

    fn numbers(&mut self) -> Vec<u64> {
        self.looks += 1;
        let looks = self.looks;
        // Of every three sessions one stays; those before and behind it end one after the other, and others begin.
        let is_there = move |number: &u64| number % 3 == 1 || number / 3 >= looks;
        let all = (0..3 * Self::STAYING + looks).filter(is_there);
        all.clone().chain(all.map(|number| number | Self::STREAMS)).collect()
    }

    fn staying() -> Vec<u64> {
        let staying = (0..Self::STAYING).map(|number| 3 * number + 1);
        staying.clone().chain(staying.map(|number| number | Self::STREAMS)).collect()
    }
}

fn session(number: u64) -> SessionStatus {
    SessionStatus {
        commands: 0,
        read_bytes: 0,
        written_bytes: 0,
        errors: 0,
        id: format!("{number:x}"),
        wire: "iscsi".into(),
        client: "iqn.2026-11.org.example:host".into(),
        revision: 1,
        name: None,
        port: "iqn.2026-11.org.example:host,0".into(),
        target: None,
        portal: None,
        user: None,
        iser_path: None,
        adapter: None,
        address: "192.0.2.1:1".into(),
        connections: 1,
        volumes: 0,
        volume_names: Vec::new(),
        since: String::new(),
        security: "none".into(),
        paused: false,
        shard: 0,
    }
}

fn expect_each_once(read: &[u64], pages: usize) {
    assert!(pages > 20, "{pages}");
    let mut sorted = read.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted, read, "each once, in their order");
    let staying = Changing::staying();
    let missing: Vec<_> = staying.iter().filter(|number| !sorted.contains(number)).collect();
    assert!(missing.is_empty(), "{missing:?} have been there all the time");
}

#[test]
fn sessions_are_read_while_others_begin_and_end_between_all_pages() {
    let mut changing = Changing::default();
    let (read, pages) =
        read_meanwhile(|| Answer::Sessions(changing.numbers().into_iter().map(session).collect()), 2000);
    let Answer::Sessions(read) = read else { panic!("{read:?}") };
    let read: Vec<_> = read.iter().map(|row| u64::from_str_radix(&row.id, 16).unwrap()).collect();
    expect_each_once(&read, pages);
}

#[test]
fn connections_of_one_session_stand_in_one_page() {
    let row = |number: u64| {
        let json = serde_json::json!({"client": "host", "address": "192.0.2.1:1", "session": format!("{number:x}"),
            "shard": 0, "sent_packets": 1, "received_packets": 1, "resent_packets": 0, "timeouts": 0,
            "window_out_packets": 1, "window_in_packets": 1, "round_trip_us": null});
        serde_json::from_value::<super::super::ConnectionStatistics>(json).unwrap()
    };
    let mut changing = Changing::default();
    let answer = || {
        let connections = changing.numbers().into_iter().flat_map(|number| [row(number), row(number)]).collect();
        Answer::Statistics(Statistics {
            volumes: Vec::new(),
            connections,
            dropped: Default::default(),
            quotas: Vec::new(),
        })
    };
    let (Answer::Statistics(read), pages) = read_meanwhile(answer, 3500) else { panic!("no statistics") };
    let read: Vec<_> = read.connections.iter().map(|row| u64::from_str_radix(&row.session, 16).unwrap()).collect();
    let (first, second): (Vec<_>, Vec<_>) = read.chunks(2).map(|rows| (rows[0], rows[1])).unzip();
    assert_eq!(first, second);
    expect_each_once(&first, pages);
}

#[test]
fn metrics_are_read_while_lines_come_and_go_between_all_pages() {
    let mut changing = Changing::default();
    let line = |number: u64| (number & !Changing::STREAMS, format!("{number}\n"));
    let answer = || {
        let numbers = changing.numbers().into_iter().filter(|number| number & Changing::STREAMS == 0);
        Answer::Metrics(MetricsText::with(numbers.map(line).chain([(1 << 40, "# EOF\n".to_owned())])))
    };
    let (Answer::Metrics(read), pages) = read_meanwhile(answer, 330) else { panic!("no metrics") };
    let lines = read.as_str().strip_suffix("# EOF\n").unwrap().lines();
    let mut read: Vec<u64> = lines.map(|line| line.parse().unwrap()).collect();
    let streams: Vec<_> = read.iter().map(|number| number | Changing::STREAMS).collect();
    read.extend(streams);
    expect_each_once(&read, pages);
}
