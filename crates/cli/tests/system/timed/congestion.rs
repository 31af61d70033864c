//! A narrow link, shaped by `tc tbf` with a queue of 64 KiB before it: how much of it is used, and how
//! clients share it.
//!
//! What the link carries in vain shows in what it carries well, so that is all that is judged; a machine with better things to do
//! gets another try.

use std::fmt::{self, Write};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::try_until;
use crate::harness::{Server, Wire, World, hurry, run_ok};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Rates of the link, in Mbit/s. How exact weights are shows where a client that waits for a processor has not lost its place in
/// the queue meanwhile.
const TENTH_OF_A_GIGABIT: u32 = 100;
const NARROWER: u32 = 40;

/// A server behind a narrow link.
struct Narrow {
    world: World,
    server: Server,
    wire: Wire,
    mbit_per_second: u32,
}

/// What clients did at one time.
struct Moved {
    /// Bytes of data that each client has moved in a second.
    rates: Vec<f64>,
    /// The same of all together, while none had ended.
    sum: f64,
    /// Data packets that the senders have sent, those that were sent again, and timeouts.
    sent: u64,
    resent: u64,
    timeouts: u64,
}

impl Narrow {
    /// With clients of these weights, and any others.
    fn new(test: &str, (wire, mtu): (Wire, u32), mbit_per_second: u32, weights: &[u16]) -> Option<Narrow> {
        let world = World::new(test, mtu, &["tc"])?;
        hurry();
        world.shape(0, mbit_per_second);
        let mut file = String::new();
        for (number, weight) in weights.iter().enumerate() {
            let id = run_ok(world.sanwire_of(&format!("client{number}"), &["id"]), TIMEOUT);
            writeln!(file, "[[client]]\nid = \"{}\"\nweight = {weight}", id.trim()).expect("a string");
        }
        fs::write(world.scratch.path("server.toml"), file).expect("a file");
        let [control, config] = ["control.sock", "server.toml"].map(|name| world.scratch.text(name));
        let options = ["--allow", "any", "--control", &control, "--config", &config];
        let server = Server::start_with(&world, &["disk=ram:64M"], &options);
        Some(Narrow { world, server, wire, mbit_per_second })
    }

    /// What all frames together may have, in bytes in a second: data, and whatever goes with it.
    fn whole_rate(&self) -> f64 {
        f64::from(self.mbit_per_second) * 1e6 / 8.0
    }

    /// So many clients read or write all they can for so long.
    fn load(&self, clients: usize, is_read: bool, seconds: u32) -> Moved {
        let (url, time) = (self.wire.url("disk"), seconds.to_string());
        let reads = if is_read { "100" } else { "0" };
        let arguments = ["bench", &url, "--json", "--overwrite", "--reads", reads, "--time", &time];
        let arguments = [&arguments[..], &["--pattern", "sequential", "--block", "64K", "--depth", "8"]].concat();
        let measured = thread::scope(|scope| {
            let (world, arguments) = (&self.world, &arguments);
            let client =
                |number| scope.spawn(move || run_ok(world.sanwire_of(&format!("client{number}"), arguments), TIMEOUT));
            let clients: Vec<_> = (0..clients).map(client).collect();
            let fifth = Duration::from_secs(u64::from(seconds)) / 5;
            thread::sleep(fifth);
            let (early, since) = (moved_bytes(&self.statistics()), Instant::now());
            // Who is gone is no longer counted, and leaves the others more.
            thread::sleep(3 * fifth);
            let statistics = self.statistics();
            let sum = (moved_bytes(&statistics) - early) / since.elapsed().as_secs_f64();
            let reports: Vec<String> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
            (reports, statistics, sum)
        });
        let (reports, statistics, rate) = measured;
        let reports: Vec<Value> = reports.iter().map(|text| serde_json::from_str(text).expect("JSON")).collect();
        let links: Vec<&Value> = reports.iter().flat_map(|report| report["links"].as_array().expect("links")).collect();
        let connections: Vec<&Value> =
            statistics["statistics"]["connections"].as_array().expect("connections").iter().collect();
        let senders = if is_read { &connections } else { &links };
        let sum = |key: &str| senders.iter().map(|sender| sender[key].as_u64().expect("a count")).sum();
        Moved {
            rates: reports.iter().map(|report| report["bytes_per_second"].as_f64().expect("a rate")).collect(),
            sum: rate,
            sent: sum("sent_packets"),
            resent: sum("resent_packets"),
            timeouts: sum("timeouts"),
        }
    }

    fn statistics(&self) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        let socket: PathBuf = self.world.scratch.path("control.sock");
        command.args(["ctl", "--json", "statistics", "--socket"]).arg(socket);
        serde_json::from_str(&run_ok(command, TIMEOUT)).expect("JSON")
    }

    fn stop(mut self) {
        assert!(self.server.stop().success(), "{}", self.server.log());
    }
}

/// Bytes that the server's volume has given and taken.
fn moved_bytes(statistics: &Value) -> f64 {
    let volume = &statistics["statistics"]["volumes"][0];
    ["read_bytes", "written_bytes"].map(|key| volume[key].as_f64().expect("a count")).iter().sum()
}

impl Moved {
    /// Jain's index: 1 when all have the same, 1/n when one has all.
    fn fairness(&self) -> f64 {
        let squares: f64 = self.rates.iter().map(|rate| rate * rate).sum();
        self.rates.iter().sum::<f64>().powi(2) / (self.rates.len() as f64 * squares)
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates: Vec<String> = self.rates.iter().map(|rate| format!("{:.2}", rate / 1e6)).collect();
        let Moved { sent, resent, timeouts, .. } = self;
        write!(f, "MB/s: {}; {sent} packets, {resent} of them again, {timeouts} timeouts", rates.join(", "))
    }
}

fn is_used(test: &str, wire: Wire, mtu: u32) {
    let Some(narrow) = Narrow::new(test, (wire, mtu), TENTH_OF_A_GIGABIT, &[]) else { return };
    for (clients, is_read) in [(1, true), (1, false), (8, true), (8, false)] {
        let what = format!("{wire:?}, MTU {mtu}, {clients} clients, {}", if is_read { "reads" } else { "writes" });
        try_until(&what, || {
            let moved = narrow.load(clients, is_read, 5);
            let share = moved.sum / narrow.whole_rate();
            // A few times what is usual. The queue has room for less than one large packet of each of eight clients.
            let (timeouts_max, resent_max) = match (clients, mtu) {
                (1, _) => (moved.sent / 100, moved.sent / 10),
                (_, 1500) => (moved.sent / 20, moved.sent / 3),
                _ => (moved.sent / 5, moved.sent / 2),
            };
            let is_calm = moved.timeouts <= timeouts_max && moved.resent <= resent_max;
            (format!("{share:.3} of the link; {moved}"), share >= 0.9 && is_calm)
        });
    }
    narrow.stop();
}

#[test]
#[ignore = "judged by the clock"]
fn a_narrow_ethernet_with_mtu_1500_is_used_by_one_client_and_by_eight() {
    is_used("a_narrow_ethernet_with_mtu_1500_is_used", Wire::Ethernet, 1500);
}

#[test]
#[ignore = "judged by the clock"]
fn a_narrow_ethernet_with_mtu_9000_is_used_by_one_client_and_by_eight() {
    is_used("a_narrow_ethernet_with_mtu_9000_is_used", Wire::Ethernet, 9000);
}

#[test]
#[ignore = "judged by the clock"]
fn a_narrow_ip_network_is_used_by_one_client_and_by_eight() {
    is_used("a_narrow_ip_network_is_used", Wire::Ip, 1500);
}

#[test]
#[ignore = "judged by the clock"]
fn two_clients_share_a_narrow_link_evenly() {
    let test = "two_clients_share_a_narrow_link_evenly";
    let Some(narrow) = Narrow::new(test, (Wire::Ethernet, 1500), TENTH_OF_A_GIGABIT, &[]) else { return };
    for is_read in [true, false] {
        let what = if is_read { "reads" } else { "writes" };
        try_until(what, || {
            let moved = narrow.load(2, is_read, 30);
            let index = moved.fairness();
            (format!("fairness {index:.3}; {moved}"), index >= 0.95)
        });
    }
    narrow.stop();
}

#[test]
#[ignore = "judged by the clock"]
fn a_client_of_weight_three_gets_three_times_as_much_as_one_of_weight_one() {
    let test = "a_client_of_weight_three_gets_three_times_as_much";
    let Some(narrow) = Narrow::new(test, (Wire::Ethernet, 1500), NARROWER, &[3, 1]) else { return };
    for is_read in [true, false] {
        let what = if is_read { "reads" } else { "writes" };
        try_until(what, || {
            let moved = narrow.load(2, is_read, 15);
            let ratio = moved.rates[0] / moved.rates[1];
            (format!("ratio {ratio:.2}; {moved}"), (2.7..=3.3).contains(&ratio))
        });
    }
    narrow.stop();
}
