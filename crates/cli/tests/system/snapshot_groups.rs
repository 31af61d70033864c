//! Snapshots of several volumes at once, in pools of either kind, while a host writes both, over each wire.

use std::fs::{self, OpenOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{
    Attached, Ends, SERVER_ADDRESS, Server, Wire, World, Xfs, can_run, run_ok, stamp, wait_until, write_stamps,
};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

const ROUNDS: u64 = 10;

/// How the volumes are written.
#[derive(Clone, Copy)]
enum Way {
    HyperScsi,
    /// HDSP, whose packets come by AF_PACKET or by AF_XDP.
    Hdsp(&'static str),
    Visa,
    Aoe,
}

impl Way {
    /// What the server listens on for that, besides HyperSCSI.
    fn wire(self, interface: &str) -> Option<String> {
        match self {
            Way::HyperScsi => None,
            Way::Hdsp(path) => Some(format!("hdsp:{interface},path={path}")),
            Way::Visa => Some(format!("visa:{SERVER_ADDRESS}")),
            Way::Aoe => Some(format!("aoe:{interface}")),
        }
    }

    fn url(self, interface: &str, volume: &str) -> String {
        match self {
            Way::HyperScsi => Wire::Ethernet.url(volume),
            Way::Hdsp(_) => Wire::Hdsp.url(volume),
            Way::Visa => format!("visa://{SERVER_ADDRESS}/{volume}"),
            Way::Aoe => format!("aoe://{interface}/{}", if volume == "shared" { "7.1" } else { "7.2" }),
        }
    }
}

/// The volumes, in the order in which each number is written.
fn take_while_written(order: [&str; 2], way: Way, test: &str) {
    if !can_run(test, &Xfs::TOOLS) {
        return;
    }
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let xfs = Xfs::new(&world);
    fs::create_dir_all(world.scratch.path("layers")).expect("a directory");
    let (socket, control) = (world.scratch.path("ctl.sock"), world.scratch.text("ctl.sock"));
    let pools = [format!("r={}", xfs.0.display()), format!("l={},snapshots=layers", world.scratch.text("layers"))];
    let wire = way.wire(world.interface());
    let mut options = vec!["--allow", "any", "--control", &control, "--pool", &pools[0], "--pool", &pools[1]];
    options.extend(wire.iter().flat_map(|wire| ["--wire", wire]));
    let volumes = ["shared=pool:r,size=4M,shelf=7,slot=1", "layered=pool:l,size=4M,shelf=7,slot=2"];
    let mut server = Server::start_with(&world, &volumes, &options);
    let content = |url: &str| {
        let copy = world.scratch.text("copy.raw");
        let _ = fs::remove_file(&copy);
        run_ok(world.sanwire(&["cp", url, &copy]), TIMEOUT);
        fs::read(&copy).expect("the copy")
    };

    let attached = order.map(|volume| Attached::file(&world, &way.url(world.interface(), volume)));
    let files = [&attached[0], &attached[1]]
        .map(|attached| OpenOptions::new().read(true).write(true).open(&attached.place).expect("a file"));
    let (reached, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut seen = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| write_stamps(&files, &reached, &ends));
        let _ends = Ends(&ends);
        wait_until("both are written", TIMEOUT, || reached.load(Ordering::Relaxed) > 3);
        for round in 0..ROUNDS {
            let before = reached.load(Ordering::Relaxed);
            ctl_ok(&socket, &["snapshot", "shared,layered", &format!("s{round}")]);
            seen.push((before, reached.load(Ordering::Relaxed) + 1));
            thread::sleep(Duration::from_millis(5 + 7 * round));
        }
    });
    for (round, (before, begun)) in seen.iter().enumerate() {
        let [first, second] = order.map(|volume| {
            let clone = format!("c{round}-{volume}");
            ctl_ok(&socket, &["clone", &format!("{volume}@s{round}"), &clone]);
            stamp(&content(&Wire::Ethernet.url(&clone)))
        });
        let is_prefix = first == second || first == second + 1;
        assert!(is_prefix && second >= *before && first <= *begun, "s{round}: {first}, {second}; {before} to {begun}");
    }

    // A name that one of them has already is taken of neither.
    ctl_ok(&socket, &["snapshot", "layered", "own"]);
    let refused = ctl(&socket, &["snapshot", "shared,layered", "own"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("layered@own"), "{}", refused.stderr);
    assert!(!ctl_ok(&socket, &["snapshots", "shared"]).contains("@own"));
    drop(files);
    attached.into_iter().for_each(|attached| attached.detach(&world));
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn snapshots_of_volumes_in_pools_of_both_kinds_are_one_moment_of_what_is_written_over_ethernet() {
    let test = "snapshots_of_volumes_in_pools_of_both_kinds_are_one_moment_of_what_is_written_over_ethernet";
    take_while_written(["shared", "layered"], Way::HyperScsi, test);
}

#[test]
fn so_they_are_in_the_other_order() {
    take_while_written(["layered", "shared"], Way::HyperScsi, "so_they_are_in_the_other_order");
}

#[test]
fn so_they_are_of_what_hdsp_writes() {
    take_while_written(["shared", "layered"], Way::Hdsp("packet"), "so_they_are_of_what_hdsp_writes");
}

/// What is written is written from the memory into which it was received.
#[test]
fn so_they_are_of_what_hdsp_writes_by_af_xdp() {
    take_while_written(["layered", "shared"], Way::Hdsp("xdp"), "so_they_are_of_what_hdsp_writes_by_af_xdp");
}

#[test]
fn so_they_are_of_what_visa_writes() {
    take_while_written(["layered", "shared"], Way::Visa, "so_they_are_of_what_visa_writes");
}

#[test]
fn so_they_are_of_what_aoe_writes() {
    take_while_written(["shared", "layered"], Way::Aoe, "so_they_are_of_what_aoe_writes");
}
