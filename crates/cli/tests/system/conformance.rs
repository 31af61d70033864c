//! What libiscsi's test suite says: every test of it, in the set-ups that the tests need.

mod newer;
mod report;
mod suite;

use std::path::Path;
use std::thread;

use crate::harness::{Scratch, Server, is_installed, port, skip};
use report::Report;
use suite::{Outcome, Suite};

/// Tests that must really be exercised, of all that the suite has (`iscsi-test-cu --list`).
const EXERCISED_MIN: usize = 215;

/// Large copies take 128 MiB.
const VOLUME_BYTES: u64 = 256 << 20;

/// So many blocks that some tests leave their longest transfers out.
const SMALL_VOLUME_BYTES: u64 = 16 << 20;

/// Run with the small volume only, and why.
const SMALL_ONLY: (&str, &str) =
    ("WriteSame16.Unmap", "of 65,536 blocks it writes more at once than the unit says it takes");

/// Not run with blocks of 4096 bytes, and why.
const BLOCKS_OF_512_ONLY: (&[&str], &str) = (
    &[
        "ProutReserve.AccessEA",
        "ProutReserve.AccessEAAR",
        "ProutReserve.AccessEARO",
        "ProutReserve.AccessWE",
        "ProutReserve.AccessWEAR",
        "ProutReserve.AccessWERO",
    ],
    "they send 512 bytes for a block of any length and want to hear that it was written, which would not be true; libiscsi's newer \
     versions send a whole block (7258fbf, 2020), and pass",
);

/// Tests that are not run, and why.
const LEFT_OUT: [(&str, &str); 3] = [
    ("Sanitize.Reset", "it needs a unit that takes minutes to be wiped, and sleeps for that long"),
    (
        "GetLBAStatus.UnmapSingle",
        "it asks for one block and expects another, unless blocks of 4096 bytes let it write too much",
    ),
    (
        "WriteSame10.UnmapUntilEnd",
        "it unmaps with a block of FFh and expects zeroes: what unmapped blocks do not read as is written (SBC-4 4.7.3.4.4)",
    ),
];

/// The set-ups, with the families that each is for.
const SETUPS: [Setup; 9] = [
    Setup { families: &["ALL"], ..Setup::named("thin, 512-byte blocks") },
    Setup { volume: ",block=4096", families: &["ALL"], ..Setup::named("4096-byte blocks") },
    Setup { families: &["WriteSame16"], is_small: true, ..Setup::named("16 MiB") },
    Setup { volume: ",thick", families: &["Inquiry", "WriteSame10", "WriteSame16", "Unmap"], ..Setup::named("thick") },
    Setup { volume: ",readonly", families: &["ReadOnly", "Read10", "Inquiry"], ..Setup::named("read-only") },
    Setup {
        volume: ",removable",
        families: &["PreventAllow", "StartStopUnit", "NoMedia", "TestUnitReady", "Inquiry"],
        ..Setup::named("removable")
    },
    Setup { families: &["WriteAtomic16", "CompareAndWrite"], is_memory: true, ..Setup::named("memory") },
    Setup { families: &["MultipathIO", "CompareAndWrite"], is_multipath: true, ..Setup::named("two paths") },
    Setup { families: &["iSCSIResiduals", "Inquiry", "Reserve6"], has_chap: true, ..Setup::named("CHAP") },
];

/// How a volume is served for a part of the suite.
struct Setup {
    name: &'static str,
    /// What is added to the volume.
    volume: &'static str,
    /// `ALL` means all.
    families: &'static [&'static str],
    is_multipath: bool,
    has_chap: bool,
    /// In RAM instead of a file.
    is_memory: bool,
    is_small: bool,
}

impl Setup {
    const fn named(name: &'static str) -> Setup {
        let (is_multipath, has_chap, is_memory, is_small) = (false, false, false, false);
        Setup { name, volume: "", families: &[], is_multipath, has_chap, is_memory, is_small }
    }
}

#[test]
fn libiscsi_finds_no_fault() {
    if !is_installed("iscsi-test-cu") {
        return skip("libiscsi_finds_no_fault", "the program iscsi-test-cu is not installed");
    }
    let suite = Suite::load();
    let mut report = Report::new(suite.tests(), &LEFT_OUT);
    let found = thread::scope(|scope| {
        let runs: Vec<_> = SETUPS
            .iter()
            .map(|setup| {
                let suite = &suite;
                scope.spawn(move || run(setup, suite))
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("the set-up ran")).collect::<Vec<_>>()
    });
    for (setup, outcomes) in SETUPS.iter().zip(found) {
        report.add(setup.name, outcomes);
    }
    print!("{}", report.summary());
    report.assert_no_failure();
    let exercised = report.exercised();
    assert!(
        exercised >= EXERCISED_MIN,
        "{exercised} tests were exercised, fewer than {EXERCISED_MIN}:\n{}",
        report.summary()
    );
    let (short, why) = BLOCKS_OF_512_ONLY;
    let partly = [("16 MiB", SMALL_ONLY.0.to_owned(), SMALL_ONLY.1), ("blocks of 512 bytes", short.join(", "), why)];
    report.compare_with(&partly, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md"));
}

/// Serves a volume as the set-up wants it, and has it tested.
fn run(setup: &Setup, suite: &Suite) -> Vec<(String, Outcome)> {
    let scratch = Scratch::new();
    let port = port();
    let portals = ["127.0.0.1", "127.0.0.2"].map(|address| format!("{address}:{port}"));
    let image = scratch.path("disk0.img");
    let length_bytes = if setup.is_small { SMALL_VOLUME_BYTES } else { VOLUME_BYTES };
    std::fs::File::create(&image).and_then(|file| file.set_len(length_bytes)).expect("the image is made");
    let store = if setup.is_memory { format!("ram:{length_bytes}") } else { format!("file:{}", image.display()) };
    let volume = format!("disk0={store}{}", setup.volume);
    let options = if setup.has_chap { chap(&scratch) } else { Vec::new() };
    let wires = portals.each_ref().map(|portal| format!("iscsi:{portal}"));
    let mut server = Server::start_on(&scratch, &wires.each_ref().map(|wire| &**wire), &[&volume], &options);
    let user = if setup.has_chap { "tester%a secret of 23 letters@" } else { "" };
    let urls: Vec<String> =
        portals.iter().map(|portal| format!("iscsi://{user}{portal}/iqn.2026-11.org.sanwire:disk0/0")).collect();
    let urls = if setup.is_multipath { &urls[..] } else { &urls[..1] };
    let mut found = Vec::new();
    let left_out = LEFT_OUT.into_iter().chain((!setup.is_small).then_some(SMALL_ONLY));
    let (short, why) = BLOCKS_OF_512_ONLY;
    let of_short_blocks = short.iter().filter(|_| setup.volume.contains("block=4096")).map(|test| (*test, why));
    let left_out = left_out.chain(of_short_blocks).collect::<Vec<_>>();
    for part in suite.parts(setup.families, &left_out) {
        found.extend(suite.run(&part, urls));
        assert!(server.is_alive(), "the server has ended in {part}\n{}", server.log());
    }
    assert!(server.stop().success(), "{}", server.log());
    found
}

/// A target whose users must know a secret.
fn chap(scratch: &Scratch) -> Vec<String> {
    let (file, secret) = (scratch.path("sanwire.toml"), scratch.secret("secret", "a secret of 23 letters\n"));
    let target = format!(
        "[[target]]\nname = \"iqn.2026-11.org.sanwire:disk0\"\nlun = {{ 0 = \"disk0\" }}\n\
         chap = [{{ user = \"tester\", secret-file = \"{secret}\" }}]\n"
    );
    std::fs::write(&file, target).expect("the file is written");
    vec!["--config".to_owned(), scratch.text("sanwire.toml")]
}
