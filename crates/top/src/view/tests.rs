use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sanwire_server::{Event, Happening, SessionStatus};
use serde_json::{Value, json};

use crate::{App, Attachment, Next, Numbers, Sample};

fn metrics(commands: u64, busy: f64) -> Numbers {
    let text = format!(
        "sanwire_server_info{{name=\"box\"}} 1\nsanwire_build_info{{version=\"0.1.0\"}} 1\n\
         sanwire_volume_size_bytes{{volume=\"quiet\"}} 1048576\nsanwire_volume_commands_total{{volume=\"quiet\",operation=\"read\"}} 5\n\
         sanwire_volume_size_bytes{{volume=\"vm-7\"}} 1073741824\nsanwire_volume_commands_total{{volume=\"vm-7\",operation=\"read\"}} {commands}\n\
         sanwire_volume_read_bytes_total{{volume=\"vm-7\"}} {}\n\
         sanwire_volume_command_duration_seconds_bucket{{le=\"0.001\",volume=\"vm-7\",operation=\"read\"}} {commands}\n\
         sanwire_volume_command_duration_seconds_bucket{{le=\"+Inf\",volume=\"vm-7\",operation=\"read\"}} {commands}\n\
         sanwire_wire_up{{wire=\"hs-eth:eth0\"}} 1\nsanwire_session_packets_total{{session=\"1\",protocol=\"hyperscsi\",client=\"c\",direction=\"in\"}} {commands}\n\
         sanwire_session_round_trip_seconds{{session=\"1\",protocol=\"hyperscsi\",client=\"c\"}} 0.0002\n\
         sanwire_shard_busy_seconds_total{{shard=\"0\"}} {busy}\n# EOF\n",
        commands * 4096
    );
    Numbers::parse(&text)
}

fn session(commands: u64) -> SessionStatus {
    SessionStatus {
        id: "1".into(),
        wire: "hyperscsi".into(),
        client: "19b1".into(),
        revision: 1,
        name: Some("alice\u{1b}[2J".into()),
        port: String::new(),
        target: None,
        portal: None,
        user: None,
        iser_path: None,
        adapter: None,
        address: "10.0.0.2:5674".into(),
        connections: 2,
        volumes: 1,
        volume_names: vec!["vm-7".into()],
        since: "2026-11-23T18:00:00Z".into(),
        security: "hash".into(),
        paused: false,
        commands,
        read_bytes: commands * 4096,
        written_bytes: 0,
        errors: 0,
        shard: 0,
    }
}

fn sample(second: u64, commands: u64) -> Sample {
    let event = Event {
        number: second,
        time: format!("18:00:0{second}"),
        what: Happening::LinkLost { wire: format!("hs-eth:eth{second}") },
    };
    Sample {
        at: Duration::from_secs(second),
        numbers: metrics(commands, second as f64 / 4.0),
        sessions: vec![session(commands)],
        events: vec![event],
        attachments: Vec::new(),
    }
}

fn app() -> App {
    App::new(sample(1, 1000), sample(3, 3000))
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            key => KeyCode::Char(key),
        };
        assert_eq!(app.key(KeyEvent::new(code, KeyModifiers::NONE)), Next::Show);
    }
}

fn screen(app: &App, width: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, 12)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..12).map(line).collect()
}

#[test]
fn volumes_stand_by_what_they_do_with_their_rates_and_times() {
    let lines = screen(&app(), 160);
    assert!(lines[0].starts_with("box  version 0.1.0  2 volumes, 1 sessions"), "{lines:#?}");
    assert!(lines[2].starts_with("VOLUME   IOPS*"), "{lines:#?}");
    assert!(lines[3].starts_with("vm-7     1000   3.9 MiB/s"), "the busiest first: {lines:#?}");
    assert!(lines[3].contains("500.0µs  990.0µs") && lines[3].ends_with("##########"), "{lines:#?}");
    assert!(lines[4].starts_with("quiet    0 ") && !lines[4].contains('#'), "{lines:#?}");
    assert!(lines[11].starts_with("q end"), "{lines:#?}");
}

#[test]
fn keys_choose_the_screen_the_order_and_the_rows() {
    let mut app = app();
    press(&mut app, "2");
    let lines = screen(&app, 200);
    assert!(lines[3].starts_with("alice\\u001b[2J  1000") && lines[3].contains("live"), "{lines:#?}");
    press(&mut app, "3");
    let lines = screen(&app, 160).join("\n");
    assert!(lines.contains("hs-eth:eth0") && lines.contains("200.0µs"), "{lines}");
    press(&mut app, "4");
    assert!(screen(&app, 100)[3].starts_with("0       25.0 %"), "{:#?}", screen(&app, 100));
    press(&mut app, "5");
    let lines = screen(&app, 100);
    assert!(lines[3].contains("eth3 is gone") && lines[4].contains("eth1 is gone"), "the newest first: {lines:#?}");
    press(&mut app, "1/qui\n");
    let lines = screen(&app, 160);
    assert!(lines[3].starts_with("quiet") && lines[4].is_empty() && lines[11].ends_with("filter: qui"), "{lines:#?}");
    app.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    for _ in 0..11 {
        press(&mut app, "s");
    }
    let lines = screen(&app, 160);
    assert!(lines[2].starts_with("VOLUME*") && lines[3].starts_with("quiet"), "by their names: {lines:#?}");
    press(&mut app, "j\n");
    let lines = screen(&app, 160);
    assert!(lines[2].starts_with("VOLUME        vm-7") && lines[12 - 1].starts_with("q end"), "{lines:#?}");
    assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Next::End);
    assert_eq!(app.key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)), Next::End);
}

#[test]
fn what_is_held_stays_until_it_goes_on_with_the_newest() {
    let mut app = app();
    press(&mut app, "p");
    app.take(sample(4, 3000));
    app.take(sample(5, 3000));
    assert!(screen(&app, 160)[0].ends_with("held") && screen(&app, 160)[3].starts_with("vm-7     1000"));
    press(&mut app, "p");
    assert!(screen(&app, 160)[3].starts_with("vm-7     0") || screen(&app, 160)[4].starts_with("vm-7     0"));
    app.fail("no answer".into());
    assert!(screen(&app, 160)[0].ends_with("cannot be asked: no answer"));
}

#[test]
fn nothing_that_is_too_narrow_or_empty_ends_it() {
    let nothing = |second| Sample { at: Duration::from_secs(second), ..Sample::default() };
    let empty = [App::new(nothing(1), nothing(1)), App::of_host(nothing(1), nothing(1))].map(|app| (app, 80));
    for (mut app, width) in [(app(), 1), (app(), 7)].into_iter().chain(empty) {
        for keys in ["1j\n\n", "2s/x\n", "3jj", "4\n", "5p"] {
            press(&mut app, keys);
            screen(&app, width);
        }
    }
}

#[test]
fn a_host_sees_what_its_attachments_do_and_their_links() {
    let told = |operations: u64| {
        json!({
            "url": "hs+ip://box/disk", "device": "/dev/loop3", "name": "/dev/sanwire/box/disk", "state": "waiting",
            "away_seconds": 12.5, "why": null, "operations": operations, "read_bytes": operations * 4096, "written_bytes": 0,
            "durations": [[0.001, operations], [null, operations]],
            "links": [{ "peer": "10.0.0.1:5674", "state": "live", "round_trip_us": 200, "sent_packets": operations }],
        })
    };
    let sample = |second, operations| Sample {
        at: Duration::from_secs(second),
        attachments: vec![Attachment::of(&told(operations))],
        ..Sample::default()
    };
    let mut app = App::of_host(sample(1, 1000), sample(3, 3000));
    let lines = screen(&app, 160);
    assert!(lines[0] == "attachments of this host: 1" && lines[1].starts_with("1 attachments  2 links"));
    assert!(
        lines[3].starts_with("hs+ip://box/disk  1000   3.9 MiB/s  0 B/s     500.0µs  990.0µs  waiting  12.5s"),
        "{lines:#?}"
    );
    assert!(lines[3].contains("/dev/sanwire/box/disk"), "{lines:#?}");
    press(&mut app, "2");
    let lines = screen(&app, 160);
    assert!(lines[3].starts_with("hs+ip://box/disk at 10.0.0.1:5674  live") && lines[3].contains("1000"), "{lines:#?}");
    press(&mut app, "3");
    assert_eq!(screen(&app, 160)[1], lines[1], "there is no third one");
    let told = app.json();
    assert_eq!((&told["attachments"][0]["p50_seconds"], &told["server"]), (&0.0005.into(), &Value::Null));
    assert_eq!(told["links"][0]["round_trip_seconds"], 0.0002);
}

#[test]
fn programs_get_all_screens_with_bytes_and_seconds() {
    let told = app().json();
    let volume = &told["volumes"][1];
    assert_eq!((&told["server"], &volume["volume"]), (&"box".into(), &"vm-7".into()));
    assert_eq!(volume["commands_per_second"], 1000.0);
    assert_eq!(volume["p50_seconds"], 0.0005);
    assert_eq!(told["shards"][0]["busy"], 0.25);
    assert_eq!(told["events"][0]["event"], "wire hs-eth:eth3 is gone");
    assert!(told["clients"][0]["links"] == 2.0 && told["links"].as_array().is_some_and(|links| links.len() == 2));
}
