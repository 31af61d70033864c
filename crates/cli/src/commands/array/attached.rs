//! What is done with the copies of an array that is attached on this host: its attachment does it, while the array is used.

use sanwire_attach::Registry;
use sanwire_server::{ArrayGrowth, MemberReplacement, Request};

use crate::administration::{self, Refused};
use crate::args::{ArrayCommand, Asked, AskingArgs, UseArgs, volume_for};
use crate::control;

const TERMS: AskingArgs = AskingArgs { no_wait: false, if_revision: None, dry_run: false, wide: false, json: false };

/// Has that done for which the attachment is asked, and prints what came of it. `shown`: the array; `place`: as what it is attached.
pub(super) fn run(command: &ArrayCommand, registry: &Registry, shown: &str, place: &str) -> anyhow::Result<()> {
    let Some((request, is_more_said)) = request(command)? else {
        anyhow::bail!("{shown} is attached on this host{place}: detach it");
    };
    if is_more_said {
        anyhow::bail!(
            "{shown} is attached on this host{place}: leave its members, --unfenced and --iser-path out (a new store can say it \
             itself: STORE,iser-path=rdma), and it is done there while it is used; or detach it"
        );
    }
    let record = registry.list()?.into_iter().find(|record| record.volume == shown);
    let Some(socket) = record.and_then(|record| record.control) else {
        anyhow::bail!(
            "{shown} is in use on this host{place} by a program that does nothing with its copies: end that, or try again when it has ended"
        );
    };
    let ask = |request: &Request| {
        control::ask(&socket, request).map_err(|error| match error.is::<Refused>() {
            true => error,
            false => error.context(format!(
                "{shown} is attached on this host{place}, and its attachment does not answer: it may be about to end, so try again"
            )),
        })
    };
    administration::run_to_its_end(request, TERMS, ask)
}

/// What the attachment is asked for, and whether more was said than it is to hear; `None`: that is for arrays which nobody uses.
fn request(command: &ArrayCommand) -> anyhow::Result<Option<(Request, bool)>> {
    Ok(Some(match command {
        ArrayCommand::Scrub(UseArgs { name, stores, guard }) => {
            (Request::ScrubVolume { name: name.clone() }, !stores.is_empty() || guard.is_said())
        }
        ArrayCommand::Replace { name, number, store, members, guard } => {
            let new = MemberReplacement { name: name.clone(), member: *number, store: absolute(store)? };
            (Request::ReplaceMember(new), !members.is_empty() || guard.is_said())
        }
        ArrayCommand::Grow { array: UseArgs { name, stores, guard }, added } => {
            let add = added.iter().map(|store| absolute(store)).collect::<anyhow::Result<Vec<_>>>()?;
            (Request::GrowArray(ArrayGrowth { name: name.clone(), add }), !stores.is_empty() || guard.is_said())
        }
        ArrayCommand::Create(_) | ArrayCommand::Show { .. } | ArrayCommand::Force(_) => return Ok(None),
    }))
}

/// A store as the attachment is to read it, which is in another directory.
fn absolute(store: &str) -> anyhow::Result<String> {
    // The store of a volume, whatever its name.
    const VOLUME: &str = "member=";
    let volume = volume_for(Asked::Here, &format!("{VOLUME}{store}"))?;
    Ok(volume.strip_prefix(VOLUME).unwrap_or(&volume).to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn asked(arguments: &[&str]) -> Option<(Request, bool)> {
        let all = ["sanwire", "array"].iter().chain(arguments);
        let Command::Array(args) = Cli::parse_from(all).command else { panic!("no command of arrays") };
        request(&args.command).unwrap()
    }

    #[test]
    fn an_attachment_hears_what_is_to_be_done_with_paths_that_mean_the_same_there() {
        crate::stores::register();
        let here = std::env::current_dir().unwrap();
        let name = || "data".to_owned();
        assert_eq!(asked(&["scrub", "data"]), Some((Request::ScrubVolume { name: name() }, false)));
        let new = MemberReplacement { name: name(), member: 2, store: "hs+ip://box/disk".to_owned() };
        assert_eq!(asked(&["replace", "data", "2", "hs+ip://box/disk"]), Some((Request::ReplaceMember(new), false)));
        let Some((Request::GrowArray(growth), false)) = asked(&["grow", "data", "--add", "file:new.img,size=8M"])
        else {
            panic!("it is asked for something else")
        };
        assert!(growth.add[0].starts_with(&format!("file:{}/new.img,", here.display())), "{growth:?}");
        // Who names members means an array that nobody uses.
        for more in [
            &["scrub", "data", "ram:8M"][..],
            &["grow", "data", "--unfenced"],
            &["scrub", "data", "--iser-path", "tcp"],
        ] {
            assert!(asked(more).is_some_and(|(_, is_more_said)| is_more_said), "{more:?}");
        }
        assert_eq!(asked(&["force", "data", "ram:8M"]), None);
    }
}
