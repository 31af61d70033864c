//! Measures Sanwire, its peers and the bare link side by side: HyperSCSI on two network namespaces joined by a veth pair,
//! iSCSI on the loopback of one, and iSER beside iSCSI on such a pair again.
//!
//! One round measures every contender once, so that the machine's drift meets all of them; the table has medians with the
//! smallest and the largest round. The server's processor time is that of its whole thread group; work in interrupts is
//! billed to whoever sent the packet that caused it.
#![forbid(unsafe_code)]

mod aoe;
mod bars;
mod bed;
mod curves;
mod facts;
mod flood;
mod frozen;
mod hyperscsi;
mod idle_sessions;
mod iscsi;
mod iser;
mod latency;
mod link;
mod links;
mod load;
mod management;
mod mounted;
mod paper;
mod ping;
mod process;
mod random;
mod raw;
mod rawlink;
mod report;
mod rounds;
mod run;
mod sample;
mod scale;
mod security;
mod servers;
mod sessions;
mod snapshots;
mod stream;
mod svg;
mod visa;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures Sanwire, its peers and the bare link side by side.
#[derive(Parser, Debug)]
#[command(name = "sanwire-bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run everything, or one part (root)
    Run(run::RunArgs),
    /// Log in to an iSCSI target many times, and stay
    Sessions(sessions::SessionsArgs),
    /// Put load on a disk served over ATA over Ethernet
    Aoe(aoe::AoeArgs),
    /// Have blocks sent by a plain TCP server, or send them to it
    Stream(stream::StreamArgs),
    /// Serve `stream`
    StreamServer(stream::StreamServerArgs),
    /// Measure the round trip of the bare link
    Ping(ping::PingArgs),
    /// Answer `ping`
    Pong(ping::PongArgs),
    /// Send forged first steps of HyperSCSI handshakes
    Flood(flood::FloodArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Sessions(args) => sessions::run(&args),
        Command::Aoe(args) => aoe::run(&args),
        Command::Stream(args) => stream::run(&args),
        Command::StreamServer(args) => stream::serve(&args),
        Command::Ping(args) => ping::ping(&args),
        Command::Pong(args) => ping::pong(&args),
        Command::Flood(args) => flood::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sanwire-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
