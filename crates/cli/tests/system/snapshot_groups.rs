//! Snapshots of several volumes at once, in pools of either kind, while a host writes both over raw Ethernet.

use std::fs::{self, OpenOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{Attached, Ends, Server, Wire, World, Xfs, can_run, run_ok, stamp, wait_until, write_stamps};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

const ROUNDS: u64 = 10;

/// The volumes, in the order in which each number is written.
fn take_while_written(order: [&str; 2], test: &str) {
    if !can_run(test, &Xfs::TOOLS) {
        return;
    }
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let xfs = Xfs::new(&world);
    fs::create_dir_all(world.scratch.path("layers")).expect("a directory");
    let (socket, control) = (world.scratch.path("ctl.sock"), world.scratch.text("ctl.sock"));
    let pools = [format!("r={}", xfs.0.display()), format!("l={},snapshots=layers", world.scratch.text("layers"))];
    let options = ["--allow", "any", "--control", &control, "--pool", &pools[0], "--pool", &pools[1]];
    let volumes = ["shared=pool:r,size=4M", "layered=pool:l,size=4M"];
    let mut server = Server::start_with(&world, &volumes, &options);
    let content = |url: &str| {
        let copy = world.scratch.text("copy.raw");
        let _ = fs::remove_file(&copy);
        run_ok(world.sanwire(&["cp", url, &copy]), TIMEOUT);
        fs::read(&copy).expect("the copy")
    };

    let attached = order.map(|volume| Attached::file(&world, &Wire::Ethernet.url(volume)));
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
    take_while_written(["shared", "layered"], test);
}

#[test]
fn so_they_are_in_the_other_order() {
    take_while_written(["layered", "shared"], "so_they_are_in_the_other_order");
}
