use super::happening::LINES_MAX;
use super::*;

fn added(number: usize) -> Happening {
    Happening::VolumeAdded { volume: format!("v{number}") }
}

fn refused() -> Happening {
    Happening::Refused { who: "10.0.0.1:1".into(), what: "no".into(), count: 1 }
}

fn numbers(events: &Events) -> Vec<u64> {
    events.events.iter().map(|event| event.number).collect()
}

#[test]
fn who_gives_the_cursor_back_is_told_each_event_once() {
    let log = EventLog::new(7, Revisions::new(0));
    let none = log.read(None, &EventFilter::default(), Duration::ZERO);
    assert_eq!((numbers(&none), none.gone, none.restarted), (vec![], None, false));
    (0..3).for_each(|number| log.note(added(number)));
    let first = log.read(Some(&none.cursor), &EventFilter::default(), Duration::ZERO);
    assert_eq!(numbers(&first), [1, 2, 3]);
    log.note(refused());
    let second = log.read(Some(&first.cursor), &EventFilter::default(), Duration::from_secs(60));
    assert_eq!((numbers(&second), second.gone), (vec![4], None));
    assert_eq!(numbers(&log.read(None, &EventFilter::default(), Duration::ZERO)), [1, 2, 3, 4]);
    let text = serde_json::to_string(&second).unwrap();
    assert!(text.contains("\"event\":\"refused\""), "{text}");
    assert_eq!(serde_json::from_str::<Events>(&text).unwrap(), second);
}

#[test]
fn who_waits_is_told_of_the_next_event() {
    let log = EventLog::new(7, Revisions::new(0));
    let cursor = log.read(None, &EventFilter::default(), Duration::ZERO).cursor;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| log.read(Some(&cursor), &EventFilter::default(), Duration::from_secs(60)));
        log.note(added(1));
        assert_eq!(numbers(&waits.join().unwrap()), [1]);
    });
}

#[test]
fn a_gap_is_told_and_refusals_push_nothing_else_out() {
    let log = EventLog::new(7, Revisions::new(0));
    log.note(added(0));
    let cursor = log.read(None, &EventFilter::default(), Duration::ZERO).cursor;
    (0..KEPT_MAX).for_each(|_| log.note(refused()));
    let told = log.read(Some(&cursor), &EventFilter::default(), Duration::ZERO);
    let last_gone = (KEPT_MAX - REFUSALS_MAX + 1) as u64;
    assert_eq!((told.events[0].number, told.gone), (last_gone + 1, Some((2, last_gone))));
    assert_eq!(log.read(None, &EventFilter::default(), Duration::ZERO).events[0].what, added(0), "it is still there");
    let (mut cursor, mut seen) = (told.cursor, told.events.len());
    loop {
        let more = log.read(Some(&cursor), &EventFilter::default(), Duration::ZERO);
        assert_eq!(more.gone, None);
        if more.events.is_empty() {
            break;
        }
        (cursor, seen) = (more.cursor, seen + more.events.len());
    }
    assert_eq!(seen, REFUSALS_MAX, "an answer has some of them, and the next one goes on there");
}

#[test]
fn what_is_kept_of_an_event_is_bounded() {
    let log = EventLog::new(7, Revisions::new(0));
    log.note(Happening::Reloaded { changed: vec!["x".repeat(1 << 20); 1000] });
    log.note(Happening::JobEnded { job: 1, refused: Some("y".repeat(1 << 20)) });
    let told = log.read(None, &EventFilter::default(), Duration::ZERO);
    let Happening::Reloaded { changed } = &told.events[0].what else { panic!("{told:?}") };
    assert_eq!((changed.len(), &*changed[LINES_MAX]), (LINES_MAX + 1, "and 984 more"));
    assert!(serde_json::to_vec(&told).unwrap().len() < 16 << 10);
}

#[test]
fn a_cursor_of_an_earlier_run_begins_anew() {
    let (earlier, log) = (EventLog::new(6, Revisions::new(0)), EventLog::new(7, Revisions::new(0)));
    earlier.note(added(1));
    log.note(added(2));
    for cursor in [&earlier.read(None, &EventFilter::default(), Duration::ZERO).cursor, "nonsense"] {
        let told = log.read(Some(cursor), &EventFilter::default(), Duration::ZERO);
        assert_eq!((numbers(&told), told.restarted), (vec![1], true));
    }
}

#[test]
fn who_wants_some_events_is_told_of_no_others_and_of_each_once() {
    let log = EventLog::new(7, Revisions::new(0));
    let opened = |who: &str| Happening::SessionOpened { session: "1".into(), who: who.into(), target: None };
    (0..ANSWER_MAX * 2).for_each(|number| log.note(added(number)));
    log.note(opened("client alice (19b1) at 10.0.0.1:3"));
    log.note(refused());
    log.note(opened("client bob (29b1) at 10.0.0.2:3"));
    let by = |filter: EventFilter| numbers(&log.read(None, &filter, Duration::ZERO));
    let topic = |topic| EventFilter { topics: vec![topic], ..EventFilter::default() };
    let after = 2 * ANSWER_MAX as u64;
    assert_eq!(by(topic(EventTopic::Sessions)), [after + 1, after + 3]);
    assert_eq!(by(EventFilter { client: Some("alice".into()), ..topic(EventTopic::Sessions) }), [after + 1]);
    assert_eq!(by(EventFilter { client: Some("10.0.0.1".into()), ..EventFilter::default() }), [after + 1, after + 2]);
    assert_eq!(by(EventFilter { volume: Some("v7".into()), ..EventFilter::default() }), [8]);
    assert_eq!(by(EventFilter { result: Some(EventResult::Refused), ..EventFilter::default() }), [after + 2]);
    let first = log.read(None, &topic(EventTopic::Volumes), Duration::ZERO);
    assert_eq!(numbers(&first), (1..=ANSWER_MAX as u64).collect::<Vec<_>>());
    let second = log.read(Some(&first.cursor), &topic(EventTopic::Volumes), Duration::ZERO);
    assert_eq!(numbers(&second), (ANSWER_MAX as u64 + 1..=after).collect::<Vec<_>>());
    let third = log.read(Some(&second.cursor), &topic(EventTopic::Volumes), Duration::ZERO);
    assert!(third.events.is_empty() && third.gone.is_none(), "{third:?}");
    assert_eq!(log.read(Some(&third.cursor), &EventFilter::default(), Duration::ZERO).events, [], "all were looked at");
}

#[test]
fn who_waits_for_some_events_is_not_woken_by_others() {
    let log = EventLog::new(7, Revisions::new(0));
    let links = EventFilter { topics: vec![EventTopic::Links], ..EventFilter::default() };
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| log.read(None, &links, Duration::from_secs(60)));
        (0..3).for_each(|number| log.note(added(number)));
        log.note(Happening::LinkLost { wire: "hs-eth:eth0".into() });
        assert_eq!(numbers(&waits.join().unwrap()), [4]);
    });
}
