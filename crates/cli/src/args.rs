//! The command line as data. Every value that exists is a legal one; files are read later.

mod array;
mod asked;
mod attach;
mod bench;
mod client;
mod content;
mod copies;
mod ctl;
mod derive;
mod device;
mod dvd;
mod ipdisk;
mod key;
mod links;
mod manage;
mod place;
mod reach;
mod serve;
mod setting;
mod standing;
mod status;
mod target;
mod top;
mod watching;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sanwire_core::Size;
use sanwire_hyperscsi::Recovery;
use sanwire_initiator::VisaWishes;
use sanwire_io::file::EngineKind;
use serde::Deserialize;

pub(crate) use array::{ArrayArgs, ArrayCommand, CreateArgs, ForceArgs, GuardArgs, PathArgs, UseArgs};
pub(crate) use asked::{Asked, medium_for, volume_for};
pub(crate) use attach::{AttachArgs, AttachKind, AttachOptions, Attachable, Entry, EntryName};
pub(crate) use bench::{BenchArgs, ByteRange, Pattern};
pub(crate) use client::{
    ClientArgs, CpArgs, CpEnd, DetachArgs, DiscoverArgs, InfoArgs, IscsiArgs, LeastSecurity, LsArgs,
};
pub(crate) use content::{ContentCommand, Switch};
pub(crate) use copies::CopiesCommand;
pub(crate) use ctl::CtlArgs;
pub(crate) use derive::{DeriveCommand, DvdCreateArgs, WayArgs};
pub(crate) use device::{DeviceArgs, DeviceJobChoice};
pub(crate) use dvd::{DvdArgs, DvdCommand, DvdTestArgs};
pub(crate) use ipdisk::IpdiskArgs;
pub(crate) use key::{KeyArgs, KeyCommand};
pub(crate) use manage::{AskingArgs, Form, ManageArgs, ManageCommand, SettingsArgs};
pub(crate) use place::{ArrayPlace, VolumePlace};
pub(crate) use reach::{Patience, ReachArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use setting::{SetVolumeArgs, VolumeSetting};
pub(crate) use standing::{SessionsArgs, StandingCommand};
pub(crate) use status::StatusArgs;
pub(crate) use target::{GroupTag, TargetArgs, TargetCommand, UserFile};
pub(crate) use top::TopArgs;
pub(crate) use watching::{AuditArgs, EventsArgs, ResultArg, TopicArg};

/// One SAN that speaks every wire: serve disks to other hosts, use theirs.
#[derive(Parser, Debug)]
#[command(name = "sanwire", version, propagate_version = true, term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// What is logged.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// What is logged on stderr, and how.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct LogArgs {
    /// How much to log on stderr [default: warn; serve and attach: info]
    #[arg(id = "log", long = "log", global = true, value_name = "LEVEL", env = "SANWIRE_LOG", hide_env_values = true)]
    pub(crate) level: Option<LogLevel>,

    /// How a line of the log is written [default: journald where stderr is the journal, and else text]
    #[arg(id = "log-format", long = "log-format", global = true, value_name = "FORMAT")]
    pub(crate) format: Option<LogFormat>,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve volumes
    Serve(ServeArgs),
    /// Serve one disk over VISA, a RAM disk unless a file or device is named
    Ipdisk(IpdiskArgs),
    /// Manage a server that runs on this host
    Ctl(CtlArgs),
    /// Manage a remote server in-band (needs the manage permission)
    Manage(ManageArgs),
    /// Show what a server does now: volumes, clients, links, shards, events
    Top(TopArgs),
    /// Find servers on the network
    Discover(DiscoverArgs),
    /// List the volumes of a server, or what is attached on this host
    Ls(LsArgs),
    /// Show how what is attached on this host is: live, waiting for its server, or lost
    Status(StatusArgs),
    /// Show the details of a volume
    Info(InfoArgs),
    /// Make a volume a local file and block device, or an NBD export
    Attach(AttachArgs),
    /// Detach a volume from this host
    Detach(DetachArgs),
    /// Write a block device back, or look whether it is in use
    #[command(hide = true)]
    BlockDevice(DeviceArgs),
    /// Copy between image files and volumes
    Cp(CpArgs),
    /// Measure a volume
    Bench(BenchArgs),
    /// Make one volume out of several, and show and mend such arrays
    Array(ArrayArgs),
    /// Derived virtual devices: parts of a volume for others, and their programs
    Dvd(DvdArgs),
    /// Make and show keys, and pin those of servers
    Key(KeyArgs),
    /// Print the id by which servers know this client
    Id(IdArgs),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a directory
    Man(ManArgs),
}

/// `sanwire id`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sanwire serve --allow $(sanwire id)")]
pub(crate) struct IdArgs {
    /// The file of the client's static key; it is made when absent [default: in the user's state directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// `sanwire completions`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sanwire completions bash > /etc/bash_completion.d/sanwire")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// `sanwire man`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sanwire man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The directory; it is made if it is missing
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Nothing.
    Off,
    /// Errors
    Error,
    /// Errors and warnings
    #[default]
    Warn,
    /// Connections and changes too
    Info,
    /// Decisions of the protocols too
    Debug,
    /// Everything
    Trace,
}

/// How a line of the log is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// With time and level, for people
    Text,
    /// With the priority before it, and no time: the journal has its own
    Journald,
    /// As a JSON object: time, level, message
    Json,
}

/// How VISA recovers from losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VisaMode {
    /// Only what was lost is sent again, and as much is under way as the network takes.
    #[default]
    Modern,
    /// As the other end wants it.
    Either,
    /// As in 1998: a fixed window, from which all is sent again that follows a loss.
    Classic,
}

/// Whether VISA packets have a checksum where nothing else protects them better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VisaChecksum {
    /// They have.
    #[default]
    On,
    /// As the other end wants it.
    Either,
    /// They have none.
    Off,
}

/// What VISA connections are wished to be.
pub(crate) fn visa_wishes(mode: VisaMode, checksum: VisaChecksum, payload: Option<Size>) -> VisaWishes {
    VisaWishes {
        classic: mode == VisaMode::Classic,
        allows_classic: mode != VisaMode::Modern,
        classic_payload_bytes: payload.map_or(0, |size| u32::try_from(size.0).unwrap_or(u32::MAX)),
        unchecked: checksum == VisaChecksum::Off,
        allows_unchecked: checksum != VisaChecksum::On,
    }
}

/// The payload of a VISA packet in classic mode.
pub(crate) fn visa_payload(text: &str) -> Result<Size, String> {
    let size = text.parse::<Size>().map_err(|error| error.to_string())?;
    match size.0 {
        1024..=61_440 => Ok(size),
        _ => Err(String::from("use 1K to 60K")),
    }
}

/// How packets that were lost are sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RecoveryChoice {
    /// Only those that are missing.
    #[default]
    Selective,
    /// The whole window, after a timeout.
    Window,
}

impl From<RecoveryChoice> for Recovery {
    fn from(choice: RecoveryChoice) -> Self {
        match choice {
            RecoveryChoice::Selective => Recovery::Selective,
            RecoveryChoice::Window => Recovery::WholeWindow,
        }
    }
}

/// How files and block devices are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineChoice {
    /// By io_uring where the kernel allows it, else by threads.
    #[default]
    Auto,
    /// By io_uring, or not at all.
    IoUring,
    /// By a pool of threads.
    Threads,
}

impl From<EngineChoice> for EngineKind {
    fn from(choice: EngineChoice) -> Self {
        match choice {
            EngineChoice::Auto => EngineKind::Auto,
            EngineChoice::IoUring => EngineKind::IoUring,
            EngineChoice::Threads => EngineKind::Threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use clap::CommandFactory;

    #[test]
    fn connection_options_stand_before_or_after_what_a_server_is_asked() {
        for line in [
            "sanwire manage hs+ip://h --password-file p status --json",
            "sanwire manage hs+ip://h status --password-file p --json",
        ] {
            match Cli::try_parse_from(line.split(' ')).map(|cli| cli.command) {
                Ok(Command::Manage(args)) => {
                    assert!(args.terms.json && args.reach.password_file == Some("p".into()), "{line}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
        let line = "sanwire ctl status --server a --socket /b";
        assert!(Cli::try_parse_from(line.split(' ')).is_err(), "two servers");
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("sanwire "), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn examples_stand_on_one_line_each() {
        let mut program = Cli::command();
        program.build();
        for command in program.get_subcommands_mut() {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let help = command.render_long_help().to_string();
            for example in examples.lines().filter(|line| line.starts_with("  ")) {
                assert!(help.lines().any(|line| line == example), "{example}: longer than 100 columns");
            }
        }
    }

    #[test]
    fn commands_are_read() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.command);
        assert!(matches!(
            parse("sanwire cp --resume a.img hs+ip://h/d"),
            Ok(Command::Cp(CpArgs { from: CpEnd::File(_), to: CpEnd::Volume(_), resume: true, .. }))
        ));
        assert!(matches!(
            parse("sanwire cp hs+ip://h/d -"),
            Ok(Command::Cp(CpArgs { from: CpEnd::Volume(_), to: CpEnd::Pipe, .. }))
        ));
        assert!(matches!(
            parse("sanwire attach hs+ip://h/d --as nbd"),
            Ok(Command::Attach(AttachArgs { options: AttachOptions { kind: AttachKind::Nbd, .. }, .. }))
        ));
        let wait = |line: &str| match parse(line) {
            Ok(Command::Attach(args)) => args.options.client.reach.wait,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait("sanwire attach hs+ip://h/d"), None);
        assert_eq!(wait("sanwire attach hs+ip://h/d --wait forever"), Some(Patience::Forever));
        assert_eq!(wait("sanwire attach hs+ip://h/d --wait 0.5"), Some(Patience::For(Duration::from_millis(500))));
        assert!(matches!(
            parse("sanwire bench hs+ip://h/d --range 1M-2M"),
            Ok(Command::Bench(BenchArgs {
                range: Some(ByteRange { start_bytes: 0x10_0000, end_bytes: 0x20_0000 }),
                ..
            }))
        ));
        for line in [
            "sanwire",
            "sanwire cp a.img",
            "sanwire cp a.img ftp://h/d",
            "sanwire info hs+ip://",
            "sanwire bench hs+ip://h/d --depth 0",
            "sanwire bench hs+ip://h/d --block 0",
            "sanwire bench hs+ip://h/d --reads 101",
            "sanwire bench hs+ip://h/d --range 2M-1M",
            "sanwire attach hs+ip://h/d --socket /s --listen 1.2.3.4:5",
            "sanwire attach hs+ip://h/d --wait ever",
            "sanwire attach hs+ip://h/d --wait 0",
            "sanwire attach",
            "sanwire attach ../data",
            "sanwire attach --save a/b hs+ip://h/d",
            "sanwire serve --shards 0",
            "sanwire ctl map-volume disk0",
            "sanwire ctl add-client alice",
        ] {
            assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
        }
    }
}
