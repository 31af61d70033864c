//! Documents and output say the same: every key of `ctl --json` stands in `docs/output.md`, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::CommandFactory;
use sanwire_server::{
    Answer, Collections, Deviation, GroupStatus, JobState, JobStatus, MissingStatus, RunStatus, SCHEMA, Statistics,
    Status, TargetStatus, TargetTerms,
};
use serde_json::Value;

use super::show;
use crate::args::{Cli, Form};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words in backquotes of the first cells, and of the second ones, of the tables below a heading; by rows.
fn rows(document: &str, heading: &str) -> Vec<[BTreeSet<String>; 2]> {
    let is_heading = |line: &&str| line.starts_with('#');
    let below = document.lines().skip_while(|line| !line.trim_start_matches('#').trim_start().starts_with(heading));
    let section = below.skip(1).take_while(|line| !is_heading(line));
    let words = |cell: &str| -> BTreeSet<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split('|');
        Some([words(cells.next()?), words(cells.next()?)])
    };
    let rows: Vec<_> = section.filter_map(row).filter(|[first, _]| !first.is_empty()).collect();
    assert!(!rows.is_empty(), "there is no table below '{heading}'");
    rows
}

fn documented(document: &str, heading: &str) -> BTreeSet<String> {
    rows(document, heading).into_iter().flat_map(|[keys, _]| keys).collect()
}

fn keys_of(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}

/// What the HTTP API describes, whose description is compared with the program by a test of its own.
fn described(schema: &str) -> BTreeSet<String> {
    let api: Value = serde_json::from_str(&document("openapi.json")).unwrap();
    let mut keys = keys_of(&api["components"]["schemas"][schema]["properties"]);
    // What is never told.
    keys.remove("psk");
    keys
}

fn status() -> Status {
    Status {
        name: "box".into(),
        run: Box::new(RunStatus::default()),
        wires: Vec::new(),
        revision: 1,
        collections: Collections::default(),
        deviations: vec![Deviation { resource: "volume".into(), name: "a".into(), configured: None, now: None }],
        missing: vec![MissingStatus { name: "a".into(), reason: "gone".into() }],
        volumes: Vec::new(),
        targets: vec![TargetStatus {
            revision: 1,
            name: "iqn.x:a".into(),
            terms: TargetTerms::default(),
            units: Vec::new(),
            groups: vec![GroupStatus { group: 1, state: None }],
        }],
        groups: vec![],
    }
}

fn job() -> JobStatus {
    JobStatus {
        id: 1,
        request: Value::Null,
        by: "uid 0".into(),
        state: JobState::Refused,
        progress: Some("half".into()),
        copy: Some(Box::default()),
        begun: "then".into(),
        ended: Some("now".into()),
        changed: vec!["a line".into()],
        refused: Some("why".into()),
        code: Some("internal".into()),
    }
}

#[test]
fn every_key_of_the_output_is_documented_and_every_documented_key_is_there() {
    let output = document("output.md");
    let (status, job) = (serde_json::to_value(status()).unwrap(), serde_json::to_value(job()).unwrap());
    for (heading, there) in [
        ("A server: `status` in", keys_of(&status)),
        ("A served volume: each", described("VolumeStatus")),
        ("What a volume is of another one", described("DerivedStatus")),
        ("What a principal has done", described("PrincipalStatus")),
        ("An iSCSI target: each", keys_of(&status["targets"][0])),
        ("A client: each", described("ClientStatus")),
        ("What a client may do: `client`", described("ClientConfig")),
        ("A session: each", described("SessionStatus")),
        ("A command that is under way: each", described("CommandStatus")),
        ("What was counted: `statistics`", described("Statistics")),
        ("What a volume has done: each", described("VolumeStatistics")),
        ("What a connection has done: each", described("ConnectionStatistics")),
        ("Quotas: each", described("QuotaStatistics")),
        ("A change that takes long: each", keys_of(&job)),
        ("A pool: each", described("PoolStatus")),
        ("A snapshot: each", described("SnapshotStatus")),
    ] {
        assert_eq!(documented(&output, heading), there, "{heading}");
    }
    // Small objects stand in the row of their key.
    for (heading, key, parts) in [
        ("A server: `status` in", "groups", keys_of(&status["targets"][0]["groups"][0])),
        ("A server: `status` in", "deviations", keys_of(&status["deviations"][0])),
        ("A server: `status` in", "missing", keys_of(&status["missing"][0])),
        ("A server: `status` in", "host", keys_of(&status["host"])),
        ("A server: `status` in", "collections", keys_of(&status["collections"])),
        ("What a volume has done: each", "remote", described("RemoteStatistics")),
        ("What a connection has done: each", "data", described("DataStatistics")),
        ("What a connection has done: each", "data", described("RdmaStatistics")),
    ] {
        let told = rows(&output, heading).into_iter().find(|[keys, _]| keys.contains(key)).unwrap();
        assert!(told[1].is_superset(&parts), "{key}: {parts:?} in {told:?}");
    }
}

#[test]
fn every_event_and_every_reason_is_documented() {
    let output = document("output.md");
    let api: Value = serde_json::from_str(&document("openapi.json")).unwrap();
    let told: BTreeMap<String, BTreeSet<String>> = rows(&output, "What has happened: `events`")
        .into_iter()
        .flat_map(|[events, keys]| events.into_iter().map(move |event| (event, keys.clone())))
        .collect();
    for event in api["components"]["schemas"]["Happening"]["oneOf"].as_array().unwrap() {
        let mut keys = keys_of(&event["properties"]);
        keys.remove("event");
        let name = event["properties"]["event"]["enum"][0].as_str().unwrap();
        assert_eq!(told.get(name), Some(&keys), "{name}");
    }
    let told = documented(&output, "Reasons for dropped packets");
    for (reason, _) in sanwire_hyperscsi::Counters::default().reasons() {
        assert!(told.contains(&reason.replace(' ', "_")), "{reason}");
    }
}

#[test]
fn json_is_one_object_with_its_schema_in_one_case() {
    for answer in [Answer::Status(status()), Answer::Job(job()), Answer::Changed(vec!["a line".into()])] {
        let written: Value = serde_json::from_str(&show(&answer, Form::Json).unwrap()).unwrap();
        assert_eq!(written["schema"], SCHEMA);
        assert_eq!(written.as_object().unwrap().len(), 2, "{written}");
    }
    let output = document("output.md");
    assert!(output.contains(&format!("version of all that stands here: {SCHEMA}.")));
    for schema in ["ClientConfig", "VolumeStatus", "SessionStatus", "Statistics"] {
        assert!(described(schema).iter().all(|key| !key.contains(['-', ' '])), "{schema}");
    }
}

/// People search for "protection", as the documents call it. AoE, which has none, "guards nothing".
#[test]
fn protection_is_called_so_in_help_tables_and_the_description_of_http() {
    let mut program = Cli::command();
    program.build();
    let mut texts = vec![("openapi.json".to_owned(), document("openapi.json"))];
    let mut commands: Vec<clap::Command> = vec![program];
    while let Some(mut command) = commands.pop() {
        texts.push((command.get_name().to_owned(), command.render_long_help().to_string()));
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(texts.len() > 80, "{}", texts.len());
    let dropped = [("guarded_too_little".to_owned(), 1)].into();
    let statistics = Statistics { volumes: Vec::new(), connections: Vec::new(), dropped, quotas: Vec::new() };
    texts.push(("ctl statistics".to_owned(), show(&Answer::Statistics(statistics), Form::Narrow).unwrap()));
    for (name, text) in texts {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace("AoE guards nothing", "");
        let at = text.to_lowercase().find("guard");
        let near = at.map(|at| text.chars().skip(at.saturating_sub(40)).take(90).collect::<String>());
        assert_eq!(near, None, "{name}");
    }
}
