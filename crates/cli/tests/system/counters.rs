//! What a server counts of its stores, as its administrator sees it.

use std::fs;
use std::time::Duration;

use crate::harness::{Client, Scratch, Server, pattern, port, wait_until};
use crate::manage::ctl_ok;

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn errors_of_a_store_are_told_by_their_kinds() {
    let scratch = Scratch::new();
    let (socket, port) = (scratch.path("c.sock"), port());
    let options = ["--control".to_owned(), scratch.text("c.sock")];
    let volumes = ["bad=ram:8M,error=write@1M..2M", "good=ram:8M"];
    let mut server = Server::start_on(&scratch, &[&format!("iscsi:127.0.0.1:{port}")], &volumes, &options);
    let image = scratch.path("image");
    fs::write(&image, pattern(1, 2 << 20)).expect("an image");
    let client = Client::new(&scratch, "client");
    for volume in ["bad", "good"] {
        let url = format!("iscsi://127.0.0.1:{port}/iqn.2026-11.org.sanwire:{volume}/0");
        let ran = client.run(&["cp", "--overwrite", &image.display().to_string(), &url]);
        assert_eq!(ran.code, Some(i32::from(volume == "bad")), "{ran:?}");
    }
    // A client that gives up may leave before all that it has asked for has ended.
    let series = "sanwire_volume_store_errors_total{volume=\"bad\",kind=\"unwritable\"} ";
    let count = || ctl_ok(&socket, &["metrics"]).lines().find_map(|line| Some(line.strip_prefix(series)?.to_owned()));
    wait_until("its errors are counted", TIMEOUT, || count().is_some());
    let metrics = ctl_ok(&socket, &["metrics"]);
    assert!(!metrics.contains("volume_store_errors_total{volume=\"good\""), "{metrics}");
    assert!(!metrics.contains("volume_store_up"), "neither is elsewhere: {metrics}");
    let statistics = ctl_ok(&socket, &["statistics"]);
    let row = statistics.lines().find(|line| line.starts_with("bad ") && line.ends_with(" unwritable"));
    let words: Vec<&str> = row.unwrap_or_else(|| panic!("{statistics}")).split_whitespace().collect();
    assert_eq!(&words[..5], ["bad", "-", "-", "-", "-"]);
    assert!(server.stop().success(), "{}", server.log());
}
