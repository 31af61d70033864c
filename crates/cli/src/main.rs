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
mod log;
mod output;
mod paging;
mod parking;
mod rdma;
mod service;
mod signals;
mod stores;
#[cfg(test)]
mod test_volume;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, LogLevel};

fn main() -> ExitCode {
    stores::register();
    let result = run(Cli::parse());
    log::end();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let level = cli.log.level.unwrap_or_default();
    let logged = |level, command: &dyn Fn() -> anyhow::Result<()>| {
        log::start(level, cli.log.format);
        command()
    };
    match cli.command {
        Command::Serve(args) => commands::serve::run(&args, cli.log),
        Command::Ipdisk(args) => commands::serve::run(&args.serve()?, cli.log),
        Command::Ctl(args) => logged(level, &|| commands::ctl::run(&args)),
        Command::Manage(args) => logged(level, &|| commands::manage::run(&args)),
        Command::Top(args) => logged(level, &|| commands::top::run(&args)),
        Command::Discover(args) => logged(level, &|| commands::discover::run(&args)),
        Command::Ls(args) => logged(level, &|| commands::ls::run(&args)),
        Command::Status(args) => logged(level, &|| commands::status::run(&args)),
        Command::Info(args) => logged(level, &|| commands::info::run(&args)),
        Command::Attach(args) => logged(cli.log.level.unwrap_or(LogLevel::Info), &|| commands::attach::run(&args)),
        Command::Detach(args) => logged(level, &|| commands::detach::run(&args)),
        Command::BlockDevice(args) => {
            commands::device::run(&args);
            Ok(())
        }
        Command::Cp(args) => logged(level, &|| commands::cp::run(&args)),
        Command::Bench(args) => logged(level, &|| commands::bench::run(&args)),
        Command::Array(args) => logged(level, &|| commands::array::run(&args)),
        Command::Dvd(args) => logged(level, &|| commands::dvd::run(&args)),
        Command::Key(args) => logged(level, &|| commands::key::run(&args)),
        Command::Id(args) => commands::id::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Man(args) => commands::man::run(&args),
    }
}
