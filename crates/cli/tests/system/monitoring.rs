//! What a monitoring system sees: a real Prometheus reads the metrics of a server, and every expression that is shipped gives a result.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Process, Scratch, Server, Tmpfs, is_installed, port, run, run_ok, skip, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

fn sanwire(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.args(arguments).env("XDG_STATE_HOME", scratch.path("client-state"));
    command
}

#[test]
fn the_rules_for_prometheus_do_what_their_tests_say() {
    if !is_installed("promtool") {
        return skip("the_rules_for_prometheus_do_what_their_tests_say", "prometheus is not installed");
    }
    for (command, file) in
        [("check rules", "rules.yml"), ("test rules", "tests.yml"), ("check config", "prometheus.yml")]
    {
        let mut promtool = Command::new("promtool");
        promtool.args(command.split(' ')).arg(file).current_dir(packaging("prometheus"));
        run_ok(promtool, TIMEOUT);
    }
}

/// A server with a volume that is written and read, one whose store fails, and one that is on another server.
struct Watched {
    _far: Server,
    server: Server,
    http: u16,
    /// Where the attachment tells its metrics.
    attachment: u16,
    _loads: [Process; 4],
}

fn watched(scratch: &Scratch, far: &Scratch) -> Watched {
    let [far_port, near_port, iscsi_port, iser_port, visa_port, http] = std::array::from_fn(|_| port());
    let far = Server::start_here(far, far_port, &["x=ram:8M"]);
    fs::create_dir(scratch.path("pool")).expect("a pool");
    let remote = format!("far=hs+ip://127.0.0.1:{far_port}/x");
    let server = Server::start_on(
        scratch,
        &[
            &format!("hs-ip:127.0.0.1:{near_port}"),
            &format!("iscsi:127.0.0.1:{iscsi_port}"),
            &format!("iser:127.0.0.1:{iser_port}"),
            &format!("visa:127.0.0.1:{visa_port}"),
            "hdsp:lo",
        ],
        &[
            "a=ram:64M",
            "bad=ram:8M,error=write@0M..8M",
            "pooled=pool:,size=8M",
            &remote,
            "cam=dvd:a,region=0+1M,principal=any",
        ],
        &[
            format!("--http=127.0.0.1:{http}"),
            // With a certificate.
            format!("--http=0.0.0.0:{}", port()),
            format!("--pool=fast={},snapshots=layers", scratch.text("pool")),
            format!("--control={}", scratch.text("control")),
            format!("--key-file={}", scratch.text("server.key")),
            format!("--state-directory={}", scratch.text("state")),
        ],
    );
    let snapshot = ["ctl", "snapshot", "pooled", "monday", "--socket", &scratch.text("control")];
    run_ok(sanwire(scratch, &snapshot), TIMEOUT);
    let url = format!("hs+ip://127.0.0.1:{near_port}");
    fs::write(scratch.path("image"), [1; 4096]).expect("an image");
    let broken = sanwire(scratch, &["cp", &scratch.text("image"), &format!("{url}/bad")]);
    assert_eq!(run(broken, TIMEOUT).code, Some(1), "its store cannot be written");
    let load = ["bench", &format!("{url}/a"), "--reads", "50", "--time", "600", "--overwrite"];
    let [iscsi, iser] = [("iscsi", iscsi_port), ("iser", iser_port)]
        .map(|(wire, port)| format!("{wire}://127.0.0.1:{port}/iqn.2026-11.org.sanwire:a/0"));
    let reads = |url| ["bench", url, "--reads", "100", "--time", "600"];
    let start = |label, arguments: &[&str]| Process::spawn(label, sanwire(scratch, arguments), scratch.path(label));
    let (attachment, socket) = (port(), scratch.text("nbd.sock"));
    let metrics = format!("127.0.0.1:{attachment}");
    let attach = ["attach", &format!("{url}/pooled"), "--as", "nbd", "--socket", &socket, "--metrics", &metrics];
    let loads = [
        start("load", &load),
        start("load of iSCSI", &reads(&iscsi)),
        start("load of iSER", &reads(&iser)),
        start("attach", &attach),
    ];
    Watched { _far: far, server, http, attachment, _loads: loads }
}

/// A Prometheus that reads from these ports once a second.
struct Prometheus {
    _process: Process,
    port: u16,
}

impl Prometheus {
    fn start(scratch: &Scratch, targets: [u16; 2]) -> Prometheus {
        let (port, rules) = (port(), packaging("prometheus/rules.yml"));
        let [server, attachment] = targets;
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\n\
             scrape_configs: [{{job_name: sanwire, static_configs: [{{targets: ['127.0.0.1:{server}', '127.0.0.1:{attachment}']}}]}}]\n"
        );
        fs::write(scratch.path("prometheus.yml"), config).expect("a configuration");
        let mut command = Command::new("prometheus");
        command.args([
            format!("--config.file={}", scratch.text("prometheus.yml")),
            format!("--storage.tsdb.path={}", scratch.text("tsdb")),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn".to_owned(),
        ]);
        Prometheus { _process: Process::spawn("prometheus", command, scratch.path("prometheus.log")), port }
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// What an expression comes to, each with its labels and its value.
    fn query(&self, expression: &str) -> Vec<Value> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={escaped}")).expect("an answer");
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }
}

/// The expressions of the dashboard and of the rules. Comparisons give a result whether or not they hold.
fn shipped_expressions() -> BTreeSet<String> {
    let dashboard = fs::read_to_string(packaging("grafana/sanwire.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let of_panels = targets.map(|target| target["expr"].as_str().expect("an expression").to_owned());
    let rules = fs::read_to_string(packaging("prometheus/rules.yml")).expect("the rules");
    let all: BTreeSet<String> = of_panels.chain(expressions_of_rules(&rules)).collect();
    for metric in ["commands", "read_bytes", "written_bytes", "refused"] {
        let of_dvds = format!("rate(sanwire_dvd_{metric}_total");
        assert!(
            all.iter().any(|expression| expression.contains(&of_dvds)),
            "no panel shows {metric} of derived volumes"
        );
    }
    for metric in ["iscsi_direct_bytes_total", "iscsi_copied_bytes_total", "session_memory_keys", "session_credits"] {
        let of_iser = format!("sanwire_{metric}{{");
        assert!(all.iter().any(|expression| expression.contains(&of_iser)), "no panel shows {metric}");
    }
    assert!(all.len() > 40 && all.iter().all(|expression| expression.len() > 5), "{all:?}");
    let ready = |mut expression: String| {
        for (what, with) in [("$__rate_interval", "1m"), ("$instance", ".*"), ("$volume", ".*")] {
            expression = expression.replace(what, with);
        }
        for comparison in [" > ", " < ", " == "] {
            expression = expression.replace(comparison, &format!("{comparison}bool "));
        }
        expression
    };
    all.into_iter().map(ready).collect()
}

/// Each of one line, or of those below `expr: |` that stand further to the right.
fn expressions_of_rules(rules: &str) -> Vec<String> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut lines = rules.lines().peekable();
    let mut expressions = Vec::new();
    while let Some(line) = lines.next() {
        let Some(expression) = line.trim().strip_prefix("expr: ") else { continue };
        let mut expression = expression.to_owned();
        if matches!(&*expression, "|" | ">") {
            expression.clear();
            while let Some(more) = lines.next_if(|more| depth(more) > depth(line)) {
                expression.push_str(more);
                expression.push('\n');
            }
        }
        expressions.push(expression);
    }
    expressions
}

#[test]
fn every_expression_that_is_shipped_gives_a_result_in_a_real_prometheus() {
    if !is_installed("prometheus") {
        let test = "every_expression_that_is_shipped_gives_a_result_in_a_real_prometheus";
        return skip(test, "prometheus is not installed");
    }
    let (scratch, far) = (Scratch::new(), Scratch::new());
    let mut watched = watched(&scratch, &far);
    let prometheus = Prometheus::start(&scratch, [watched.http, watched.attachment]);
    wait_until("Prometheus answers", TIMEOUT, || prometheus.get("/api/v1/targets").is_some());
    wait_until("the server was read several times", TIMEOUT, || {
        let scrapes =
            prometheus.query("count_over_time(sanwire_volume_commands_total{volume='a',operation='write'}[1m])");
        scrapes.first().and_then(|row| row["value"][1].as_str()?.parse().ok()).is_some_and(|count: u32| count > 3)
    });
    let targets = prometheus.get("/api/v1/targets").expect("an answer");
    let targets = targets["data"]["activeTargets"].as_array().expect("targets");
    assert!(targets.len() == 2 && targets.iter().all(|target| target["lastError"] == ""), "{targets:?}");
    let mut empty = shipped_expressions();
    wait_until("every expression gives a result", TIMEOUT, || {
        empty.retain(|expression| prometheus.query(expression).is_empty());
        empty.is_empty() || {
            eprintln!("none yet: {empty:#?}");
            thread::sleep(Duration::from_secs(1));
            false
        }
    });
    let p99 = prometheus.query("sanwire:volume_command_duration_seconds:p99{volume='a',operation='write'}");
    let p99: f64 = p99[0]["value"][1].as_str().expect("a value").parse().expect("a number");
    assert!(p99 > 0.0 && p99 < 4.2, "{p99}");
    let kinds = prometheus.query("sanwire_volume_errors_total{volume='bad',kind='store'}");
    assert_eq!(kinds.len(), 1, "{kinds:?}");
    let refused = prometheus.query("sanwire_dvd_refused_total{volume='cam'}");
    assert_eq!(refused.len(), 5, "a derived volume has one for each reason: {refused:?}");
    let metadata = prometheus.get("/api/v1/metadata").expect("an answer");
    assert_eq!(metadata["data"]["sanwire_volume_command_duration_seconds"][0]["type"], "histogram", "{metadata}");
    assert!(watched.server.is_alive());
}

#[test]
fn an_administrator_sees_who_does_what_and_who_has_changed_what() {
    let scratch = Scratch::new();
    let (hyperscsi, socket) = (port(), scratch.text("control"));
    let wires = [format!("hs-ip:127.0.0.1:{hyperscsi}"), format!("iscsi:127.0.0.1:{}", port())];
    let options = ["--control".into(), socket.clone(), "--key-file".into(), scratch.text("server.key")];
    let _server = Server::start_on(&scratch, &[&wires[0], &wires[1]], &["a=ram:64M", "b=ram:8M"], &options);
    let load = ["bench", &format!("hs+ip://127.0.0.1:{hyperscsi}/a"), "--time", "600"];
    let _load = Process::spawn("load", sanwire(&scratch, &load), scratch.path("load.log"));
    let ctl = |arguments: &[&str]| {
        let arguments: Vec<&str> = ["ctl"].iter().chain(arguments).chain(&["--socket", &socket]).copied().collect();
        run_ok(sanwire(&scratch, &arguments), TIMEOUT)
    };
    wait_until("the load has begun", TIMEOUT, || ctl(&["sessions"]).contains("127.0.0.1"));
    ctl(&["add-volume", "c=ram:1M"]);
    ctl(&["remove-volume", "c"]);
    let refused = run(sanwire(&scratch, &["ctl", "remove-volume", "a", "--socket", &socket]), TIMEOUT);
    assert_eq!(refused.code, Some(1), "it is in use: {refused:?}");

    let status = ctl(&["status"]);
    assert!(status.contains("version 0.1.0, up ") && status.contains("ram:64M"), "{status}");
    let tree = ctl(&["tree"]);
    assert!(tree.contains("├─ HyperSCSI\n") && tree.contains(" at 127.0.0.1:") && tree.contains("LUN 1  b"), "{tree}");
    let rates = ctl(&["sessions", "--rate", "0.5"]);
    assert!(rates.contains("COMMANDS/S") && rates.lines().count() == 2, "{rates}");
    let events = ctl(&["events", "--topic", "volumes", "--volume", "c"]);
    assert!(events.contains("volume c is served") && events.lines().count() == 3, "two, and the cursor: {events}");
    let sessions = ctl(&["events", "--topic", "sessions,links", "--client", "127.0.0.1"]);
    assert!(sessions.contains("begins") && !sessions.contains("volume c"), "{sessions}");

    let audit = ctl(&["audit", "--since", "1h"]);
    let cursor = audit.trim_end().rsplit_once("cursor ").expect("a cursor").1.to_owned();
    assert!(audit.contains("add-volume") && audit.contains("refused pid "), "{audit}");
    let only = ctl(&["audit", "--result", "refused", "--json"]);
    let line: Value = serde_json::from_str(only.trim()).expect("one line");
    assert_eq!((&line["request"]["do"], &line["result"]), (&"remove-volume".into(), &"refused".into()));
    ctl(&["resize-volume", "b", "16M"]);
    let later = ctl(&["audit", "--since", &cursor]);
    assert!(later.contains("resize-volume") && !later.contains("add-volume"), "{later}");
    let strange = run(sanwire(&scratch, &["ctl", "audit", "--since", "yesterday", "--socket", &socket]), TIMEOUT);
    assert_eq!(strange.code, Some(2), "{strange:?}");

    let told = run_ok(sanwire(&scratch, &["top", "--once", "--json", "--socket", &socket]), TIMEOUT);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let a = &told["volumes"][0];
    assert!(a["commands_per_second"].as_f64() > Some(0.0) && a["p99_seconds"].as_f64() > Some(0.0), "{told:#}");
    assert_eq!((&told["clients"][0]["state"], &told["clients"][0]["volumes"]), (&"live".into(), &"a".into()));
    let piped = run(sanwire(&scratch, &["top", "--socket", &socket]), TIMEOUT);
    assert!(piped.code == Some(2) && piped.stderr.contains("--once"), "{piped:?}");
    top_in_a_terminal(&scratch, &socket);
}

/// Looks at the screens as a person would, and ends by `q`.
fn top_in_a_terminal(scratch: &Scratch, socket: &str) {
    if !is_installed("tmux") {
        return skip("top_in_a_terminal", "tmux is not installed");
    }
    let tmux = |arguments: &[&str]| {
        let mut command = Command::new("tmux");
        command.args(["-S", &scratch.text("tmux")]).args(arguments).env("LC_ALL", "C.UTF-8");
        run(command, TIMEOUT)
    };
    let top = format!("{} top --socket {socket}; echo ended $?; sleep 60", env!("CARGO_BIN_EXE_sanwire"));
    let begun = tmux(&["new-session", "-d", "-x", "180", "-y", "24", "-s", "top", &top]);
    assert_eq!(begun.code, Some(0), "{begun:?}");
    let sees = |what: &str| {
        wait_until(what, TIMEOUT, || tmux(&["capture-pane", "-p", "-t", "top"]).stdout.contains(what));
    };
    sees("IOPS*");
    for (key, seen) in [("2", "CLIENT"), ("3", "ROUND TRIP"), ("4", "BUSY"), ("5", "volume c is served"), ("1", "P99")]
    {
        tmux(&["send-keys", "-t", "top", key]);
        sees(seen);
    }
    tmux(&["send-keys", "-t", "top", "/", "b", "Enter"]);
    sees("filter: b");
    tmux(&["send-keys", "-t", "top", "Enter"]);
    sees("UNDER WAY");
    tmux(&["send-keys", "-t", "top", "q"]);
    sees("ended 0");
    tmux(&["kill-server"]);
}

#[test]
fn a_pool_that_fills_up_is_told_of_before_it_is_full() {
    let scratch = Scratch::new();
    let (hyperscsi, socket) = (port(), scratch.text("control.sock"));
    let file_system = Tmpfs::mount(&scratch.path("pool"), "64M");
    fs::write(file_system.0.join("other"), vec![1; 55 << 20]).expect("a file that is none of a volume");
    let options = ["--control", &socket, "--pool", &format!("fast={}", scratch.text("pool"))].map(str::to_owned);
    let wire = format!("hs-ip:127.0.0.1:{hyperscsi}");
    let mut server = Server::start_on(&scratch, &[&wire], &["a=pool:,size=64M"], &options);
    let ctl = |arguments: &[&str]| {
        run_ok(sanwire(&scratch, &[&["ctl"], arguments, &["--socket", &socket]].concat()), TIMEOUT)
    };
    let events = || {
        let told: Value = serde_json::from_str(&ctl(&["events", "--topic", "volumes", "--json"])).expect("JSON");
        let told = told["events"]["events"].as_array().expect("events").iter();
        told.filter(|event| event["event"] == "pool-filling").cloned().collect::<Vec<_>>()
    };
    // Nobody asks for the pool: it is looked at when the server begins, and from time to time.
    wait_until("it is told", TIMEOUT, || !events().is_empty());
    let told = &events()[0];
    let percent = told["percent"].as_u64().expect("a number");
    assert!((90..95).contains(&percent) && told["pool"] == "fast" && told["of"] == "file-system", "{told}");
    fs::write(file_system.0.join("more"), vec![1; 2 << 20]).expect("another one");
    for _ in 0..2 {
        ctl(&["pools"]);
    }
    let told = events();
    assert!(told.len() == 2 && told[1]["percent"].as_u64() >= Some(95), "each step once: {told:?}");
    let left_bytes = told[1]["available_bytes"].as_u64().expect("a number");
    assert!((1..4 << 20).contains(&left_bytes), "{told:?}");
    assert!(server.stop().success());
    let log = server.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("% of its file system is taken")).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("WARN pool fast has ")), "{log}");
}
