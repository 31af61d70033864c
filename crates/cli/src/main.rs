//! The `sanwire` program: arguments, configuration file, wiring everything together.
#![forbid(unsafe_code)]

mod administration;
mod args;
mod bench;
mod commands;
mod config;
mod connect;
mod control;
mod copy;
mod failure;
mod keys;
mod known_servers;
mod output;
mod parking;
mod signals;
#[cfg(test)]
mod test_volume;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let log = cli.log.unwrap_or_default();
    match cli.command {
        Command::Serve(args) => commands::serve::run(&args, cli.log),
        Command::Ctl(args) => logged(log, || commands::ctl::run(&args)),
        Command::Manage(args) => logged(log, || commands::manage::run(&args)),
        Command::Discover(args) => logged(log, || commands::discover::run(&args)),
        Command::Ls(args) => logged(log, || commands::ls::run(&args)),
        Command::Info(args) => logged(log, || commands::info::run(&args)),
        Command::Attach(args) => logged(log, || commands::attach::run(&args)),
        Command::Detach(args) => logged(log, || commands::detach::run(&args)),
        Command::BlockDevice(args) => {
            commands::device::run(&args);
            Ok(())
        }
        Command::Cp(args) => logged(log, || commands::cp::run(&args)),
        Command::Bench(args) => logged(log, || commands::bench::run(&args)),
        Command::Key(args) => logged(log, || commands::key::run(&args)),
        Command::Id(args) => commands::id::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Man(args) => commands::man::run(&args),
    }
}

fn logged(level: args::LogLevel, command: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    output::start_log(level);
    command()
}
