//! A state directory without room: what cannot be kept is not done, not in part either, and is done once there is room.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{
    AUTHORITY, Client, Http, Initiator, Scratch, Server, Tmpfs, can_run, expect_pattern, pattern, port, wait_until,
};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

const CLIENT: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
const OTHER_CLIENT: &str = "1f1e2d3c4b5a69788796a5b4c3d2e1f0";

/// How large the file system of the state directory is.
const STATE_SIZE: &str = "512k";

struct Bed {
    server: Server,
    state: Tmpfs,
    socket: PathBuf,
    http: Http,
    port: u16,
    scratch: Scratch,
}

impl Bed {
    fn new() -> Bed {
        let (scratch, port) = (Scratch::new(), port());
        let state = Tmpfs::mount(&scratch.path("state"), STATE_SIZE);
        fs::create_dir_all(scratch.path("pool")).expect("a directory");
        fs::create_dir_all(scratch.path("files")).expect("a directory");
        let options = [
            ["--control", &scratch.text("ctl.sock")],
            ["--state-directory", &scratch.text("state")],
            ["--http", &format!("unix:{}", scratch.text("http.sock"))],
            ["--pool", &format!("p={}", scratch.text("pool"))],
            ["--allow", "any"],
        ];
        let options = options.concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        let wires = ["hs-ip", "iscsi"].map(|wire| format!("{wire}:127.0.0.1:{port}"));
        let in_file = format!("file=file:{},size=8M", scratch.text("files/file.img"));
        let volumes = ["ram=ram:8M", &in_file, "pooled=pool:p,size=1M"];
        let server = Server::start_on(&scratch, &[&wires[0], &wires[1]], &volumes, &options);
        let (socket, http) = (scratch.path("ctl.sock"), Http(scratch.path("http.sock")));
        Bed { server, state, socket, http, port, scratch }
    }

    /// What differs from that, if anything does; from then on it differs no more.
    fn differing(&self, before: &mut BTreeMap<String, String>, what: &str) -> Option<String> {
        let now = self.all();
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let differing = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
        let differing: Vec<_> = differing.map(|name| (name, before.get(name), now.get(name))).collect();
        let told = (!differing.is_empty()).then(|| format!("{what}: {differing:#?}\n"));
        *before = now;
        told
    }

    fn start_again(&mut self) {
        self.server.kill();
        self.server.restart();
        self.http.wait();
    }

    /// All that a server says it has, and what lies where its volumes are.
    fn all(&self) -> BTreeMap<String, String> {
        let status = ctl_ok(&self.socket, &["status"]);
        let served = status.split_once('\n').expect("what it serves").1.to_owned();
        let mut all = BTreeMap::from([("status".to_owned(), served)]);
        all.insert("clients".to_owned(), ctl_ok(&self.socket, &["clients"]));
        for path in ["/volumes", "/targets", "/clients", "/tokens", "/users"] {
            let mut told = self.http.done("GET", path, "");
            forget_what_passes(&mut told);
            all.insert(path.to_owned(), told.to_string());
        }
        for directory in ["pool", "files"] {
            for entry in fs::read_dir(self.scratch.path(directory)).expect("a directory").flatten() {
                let length = entry.metadata().expect("its length").len();
                all.insert(format!("{directory}/{}", entry.file_name().to_string_lossy()), length.to_string());
            }
        }
        all
    }

    /// Has a client write a volume in a file, and read it.
    fn copy_and_compare(&self, seed: u64) {
        let client = Client::new(&self.scratch, "alice");
        let url = format!("hs+ip://127.0.0.1:{}/file", self.port);
        let (image, back) = (self.scratch.text("image.raw"), self.scratch.text("back.raw"));
        fs::write(&image, pattern(seed, 8 << 20)).expect("an image");
        let written = client.run(&["cp", "--overwrite", &image, &url]);
        assert_eq!(written.code, Some(0), "{}", written.stderr);
        let _ = fs::remove_file(&back);
        assert_eq!(client.run(&["cp", &url, &back]).code, Some(0));
        expect_pattern("the volume", &fs::read(&back).expect("a copy"), seed);
    }

    /// How many tenures are kept.
    fn tenures(&self) -> usize {
        let entries = fs::read_dir(self.state.0.join("tenures")).into_iter().flatten().flatten();
        entries.filter(|entry| entry.metadata().is_ok_and(|of| of.len() == 32)).count()
    }

    fn log_in(&self) -> Initiator {
        let (address, target) = (format!("127.0.0.1:{}", self.port), format!("{AUTHORITY}:file"));
        Initiator::log_in(&address, "iqn.2026-11.org.example:host", &target, 1).expect("a session")
    }
}

/// Takes out what says only how often something has changed, or is another one after each start: who a volume in memory is.
fn forget_what_passes(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("revision");
            if members.get("store").and_then(Value::as_str).is_some_and(|store| store.starts_with("ram:")) {
                members.remove("id");
            }
            members.values_mut().for_each(forget_what_passes);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_what_passes),
        _ => {}
    }
}

/// Changes by ctl, in an order in which each can be done; the words of each begin with what is done.
fn orders(scratch: &Scratch) -> Vec<String> {
    vec![
        "add-volume more=ram:1M".to_owned(),
        format!("add-volume filed=file:{},size=1M", scratch.text("files/filed.img")),
        "add-volume inside=pool:p,size=1M".to_owned(),
        "resize-volume ram 16M".to_owned(),
        "resize-volume file 16M".to_owned(),
        "resize-volume pooled 2M".to_owned(),
        "map-volume ram --target iqn.2026-11.org.example:both --lun 3".to_owned(),
        "map-volume ram --lun 9".to_owned(),
        "set-volume ram --security none".to_owned(),
        "set-access-state 1 active-non-optimized".to_owned(),
        format!("add-client {OTHER_CLIENT} --name bob"),
        "set-client alice --read-only".to_owned(),
        "remove-client alice".to_owned(),
        "unmap-volume ram --target iqn.2026-11.org.sanwire:ram".to_owned(),
        "remove-volume ram".to_owned(),
        "delete-volume pooled".to_owned(),
    ]
}

/// Changes over HTTP that none of the above prevents: method, path, body.
const REQUESTS: [[&str; 3]; 7] = [
    ["POST", "/volumes", r#"{"name":"web","store":"ram:1M"}"#],
    ["PUT", "/volumes/wanted", r#"{"pool":"p","size":"1M"}"#],
    ["PATCH", "/volumes/file", r#"{"size":"32M"}"#],
    ["PUT", "/targets/iqn.2026-11.org.example:web/units/0", r#"{"volume":"file"}"#],
    ["POST", "/clients", r#"{"id":"2f1e2d3c4b5a69788796a5b4c3d2e1f0"}"#],
    ["POST", "/tokens", r#"{"name":"second","role":"viewer"}"#],
    ["POST", "/users", r#"{"name":"root","role":"administrator","password":"correct horse battery"}"#],
];

#[test]
fn without_room_no_change_is_made_in_part_and_with_room_each_is() {
    if !can_run("without_room_no_change_is_made_in_part_and_with_room_each_is", &["mount"]) {
        return;
    }
    let mut bed = Bed::new();
    ctl_ok(&bed.socket, &["add-client", CLIENT, "--name", "alice"]);
    ctl_ok(&bed.socket, &["add-volume", "before=ram:3M"]);
    bed.http.done("POST", "/tokens", r#"{"name":"first","role":"viewer"}"#);
    let (mut before, orders) = (bed.all(), orders(&bed.scratch));
    let filler = bed.state.fill();
    let mut failures = String::new();
    for order in &orders {
        let refused = ctl(&bed.socket, &order.split(' ').collect::<Vec<_>>());
        if refused.code != Some(1) || !refused.stderr.contains("No space left") {
            failures += &format!("{order}: {refused:?}\n");
        }
        failures.extend(bed.differing(&mut before, order));
    }
    for [method, path, body] in REQUESTS {
        let refused = bed.http.ask(method, path, body);
        if refused.0 < 500 || refused.json()["code"] != "not-kept" {
            failures += &format!("{method} {path}: {refused:?}\n");
        }
        failures.extend(bed.differing(&mut before, &format!("{method} {path}")));
    }
    bed.start_again();
    failures.extend(bed.differing(&mut before, "a start without room"));
    assert!(failures.is_empty(), "{failures}");
    drop(filler);
    for order in &orders {
        ctl_ok(&bed.socket, &order.split(' ').collect::<Vec<_>>());
    }
    for [method, path, body] in REQUESTS {
        bed.http.done(method, path, body);
    }
    let mut after = bed.all();
    bed.start_again();
    assert_eq!(bed.differing(&mut after, "a start with room"), None);
    assert!(bed.server.stop().success(), "{}", bed.server.log());
}

/// PERSISTENT RESERVE OUT (SPC-5) of a service action, with keys and the bit that keeps it through a loss of power.
fn reserve_out(session: &mut Initiator, action: u8, key: u64, new_key: u64) -> (u8, Option<(u8, u8, u8)>) {
    const WRITE_EXCLUSIVE: u8 = 1;
    const KEEP: u8 = 1;
    let mut parameters = [key.to_be_bytes(), new_key.to_be_bytes(), [0; 8]].concat();
    parameters[20] = KEEP;
    let answer = session.command(&[0x5f, action, WRITE_EXCLUSIVE, 0, 0, 0, 0, 0, 24, 0], &parameters, 0);
    (answer.status, answer.sense)
}

/// PERSISTENT RESERVE IN: the keys, and the key of who holds the reservation.
fn reserve_in(session: &mut Initiator) -> (Vec<u64>, Option<u64>) {
    let words = |data: &[u8]| -> Vec<u64> {
        let all = data.get(8..).unwrap_or_default().chunks_exact(8);
        all.map(|word| u64::from_be_bytes(word.try_into().expect("8 bytes"))).collect()
    };
    let mut read = |action| session.good(&[0x5e, action, 0, 0, 0, 0, 0, 0, 64, 0], &[], 64);
    let keys = words(&read(0));
    let holder = words(&read(1)).first().copied();
    (keys, holder)
}

#[test]
fn a_reservation_that_cannot_be_kept_is_refused_and_no_other_than_it_was() {
    if !can_run("a_reservation_that_cannot_be_kept_is_refused_and_no_other_than_it_was", &["mount"]) {
        return;
    }
    const REGISTER: u8 = 0;
    const RESERVE: u8 = 1;
    const RELEASE: u8 = 2;
    /// CHECK CONDITION.
    const CHECK: u8 = 2;
    let good = (0, None);
    let mut bed = Bed::new();
    let mut session = bed.log_in();
    let filler = bed.state.fill();
    let refused = |(status, sense): (u8, Option<(u8, u8, u8)>)| assert!(status == CHECK, "{status} {sense:02x?}");
    refused(reserve_out(&mut session, REGISTER, 0, 7));
    assert_eq!(reserve_in(&mut session), (vec![], None));
    drop(filler);
    assert_eq!(reserve_out(&mut session, REGISTER, 0, 7), good);
    let filler = bed.state.fill();
    refused(reserve_out(&mut session, RESERVE, 7, 0));
    assert_eq!(reserve_in(&mut session), (vec![7], None));
    bed.start_again();
    let mut session = bed.log_in();
    assert_eq!(reserve_in(&mut session), (vec![7], None), "what was kept with room");
    drop(filler);
    assert_eq!(reserve_out(&mut session, RESERVE, 7, 0), good);
    let filler = bed.state.fill();
    refused(reserve_out(&mut session, RELEASE, 7, 0));
    refused(reserve_out(&mut session, REGISTER, 7, 0));
    assert_eq!(reserve_in(&mut session), (vec![7], Some(7)));
    bed.start_again();
    let mut session = bed.log_in();
    assert_eq!(reserve_in(&mut session), (vec![7], Some(7)));
    let by_ctl = ["clear-reservations", "file", "--force"];
    let not_kept = ctl(&bed.socket, &by_ctl);
    assert!(not_kept.code == Some(1) && not_kept.stderr.contains("could not be kept in"), "{}", not_kept.stderr);
    assert_eq!(reserve_in(&mut session), (vec![7], Some(7)));
    drop(filler);
    assert_eq!(reserve_out(&mut session, RELEASE, 7, 0), good);
    bed.start_again();
    assert_eq!(reserve_in(&mut bed.log_in()), (vec![7], None));
    ctl_ok(&bed.socket, &by_ctl);
    bed.start_again();
    assert_eq!(reserve_in(&mut bed.log_in()), (vec![], None));
    assert!(bed.server.stop().success(), "{}", bed.server.log());
}

#[test]
fn clients_write_without_room_for_their_tenure_and_with_room_it_is_kept() {
    if !can_run("clients_write_without_room_for_their_tenure_and_with_room_it_is_kept", &["mount"]) {
        return;
    }
    let mut bed = Bed::new();
    let filler = bed.state.fill();
    bed.copy_and_compare(1);
    assert_eq!(bed.tenures(), 0);
    drop(filler);
    bed.copy_and_compare(2);
    wait_until("who writes alone is kept", TIMEOUT, || bed.tenures() == 1);
    let _filler = bed.state.fill();
    bed.copy_and_compare(3);
    bed.start_again();
    bed.copy_and_compare(4);
    assert!(bed.server.stop().success(), "{}", bed.server.log());
}
