//! Managing a running server: from the words of the command line to a request, and to what is printed of the answer.

mod dvds;
mod pools;
mod sessions;
mod standing;
mod statistics;
mod tables;
mod targets;
mod told;
mod tree;

#[cfg(test)]
mod documented;

use std::thread;
use std::time::Duration;

use sanwire_server::{
    AccessChange, Answer, ArrayGrowth, Clearing, ClientSettings, JobState, JobStatus, LinkFor, MemberReplacement,
    Request, Response, SCHEMA, Secret, SupportBundle,
};

use self::tables::table_of;
use crate::args::{
    self, Asked, AskingArgs, ContentCommand, CopiesCommand, Form, ManageCommand, SetVolumeArgs, SettingsArgs,
    StandingCommand, Switch, TargetCommand, VolumeSetting,
};
use crate::config::read_password;
use crate::failure::misuse;
use crate::{keys, output};

/// How soon it is asked again whether a job is over, or something has happened.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What is asked. Passwords are made secrets of here: the server never learns them.
fn request(command: &ManageCommand, server: Asked) -> anyhow::Result<Request> {
    Ok(match command {
        ManageCommand::Status | ManageCommand::Tree | ManageCommand::Standing(StandingCommand::SupportBundle) => {
            Request::Status
        }
        ManageCommand::Sessions(args) => sessions::request(args),
        ManageCommand::Audit(args) => Request::Audit(told::audit_query(args)?),
        ManageCommand::Statistics => Request::Statistics,
        ManageCommand::Standing(command) => standing_request(command),
        ManageCommand::Metrics => Request::Metrics,
        ManageCommand::Jobs => Request::Jobs,
        ManageCommand::Events(args) => told::events_request(args, args.since.clone(), false),
        ManageCommand::Job { id, wait } => Request::Job { id: *id, wait: *wait },
        ManageCommand::CancelJob { id } => Request::CancelJob { id: *id },
        ManageCommand::AddVolume { volume, target, renew, adopt } => {
            let volume = args::volume_for(server, volume)?;
            Request::AddVolume { volume, target: target.clone(), renew: *renew, adopt: *adopt }
        }
        ManageCommand::RemoveVolume { name, force } => Request::RemoveVolume { name: name.clone(), force: *force },
        ManageCommand::ResizeVolume { name, size } => {
            Request::ResizeVolume { name: name.clone(), size: size.0.to_string() }
        }
        ManageCommand::Copies(CopiesCommand::ScrubVolume { name }) => Request::ScrubVolume { name: name.clone() },
        ManageCommand::Copies(CopiesCommand::ReplaceMember { name, member, store }) => {
            Request::ReplaceMember(MemberReplacement { name: name.clone(), member: *member, store: store.clone() })
        }
        ManageCommand::Copies(CopiesCommand::GrowArray { name, added }) => {
            Request::GrowArray(ArrayGrowth { name: name.clone(), add: added.clone() })
        }
        ManageCommand::EjectVolume { name, force } => Request::EjectVolume { name: name.clone(), force: *force },
        ManageCommand::LoadVolume { name, store } => {
            let store = store.as_deref().map(|store| args::medium_for(server, store)).transpose()?;
            Request::LoadVolume { name: name.clone(), store }
        }
        ManageCommand::SetVolume(args) => setting_request(args),
        ManageCommand::Content(command) => content_request(command),
        ManageCommand::MapVolume { name, lun, target, force } => {
            Request::MapVolume { name: name.clone(), lun: *lun, target: target.clone(), force: *force }
        }
        ManageCommand::UnmapVolume { name, target, force } => {
            Request::UnmapVolume { name: name.clone(), target: target.clone(), force: *force }
        }
        ManageCommand::Target(command) => targets::request(command)?,
        ManageCommand::Clients => Request::Clients,
        ManageCommand::AddClient { id, settings, force } => {
            Request::AddClient { id: id.to_string(), settings: client_settings(settings)?, force: *force }
        }
        ManageCommand::SetClient { client, settings, force } => {
            Request::SetClient { client: client.clone(), settings: client_settings(settings)?, force: *force }
        }
        ManageCommand::RemoveClient { client, force } => {
            Request::RemoveClient { client: client.clone(), force: *force }
        }
        ManageCommand::ResetClient { client, force } => Request::ResetClient { client: client.clone(), force: *force },
        ManageCommand::PauseClient { client } => Request::PauseClient { client: client.clone() },
        ManageCommand::ResumeClient { client } => Request::ResumeClient { client: client.clone() },
        ManageCommand::DropClient { client } => Request::DropClient { client: client.clone() },
        ManageCommand::DropSession { session } => Request::DropSession { session: session.clone() },
        ManageCommand::WebLogin { name } => Request::WebLogin(LinkFor { name: name.clone() }),
        ManageCommand::SetAccessState { group, state, target } => {
            Request::SetAccessState(AccessChange { group: *group, state: (*state).into(), target: target.clone() })
        }
        ManageCommand::Reload { force, reset } => Request::Reload { force: *force, dry_run: false, reset: *reset },
    })
}

/// What is asked about how a server stands.
fn standing_request(command: &StandingCommand) -> Request {
    match command {
        StandingCommand::Links => Request::Links,
        StandingCommand::Configuration { toml: false } => Request::Configuration,
        StandingCommand::Configuration { toml: true } => Request::ConfigurationFile,
        StandingCommand::Commands { name } => Request::Commands { name: name.clone() },
        StandingCommand::Reservations { name } => Request::Reservations { name: name.clone() },
        StandingCommand::ClearReservations { name, key, force } => {
            Request::ClearReservations(Clearing { name: name.clone(), key: key.clone(), force: *force })
        }
        // It begins with this.
        StandingCommand::SupportBundle => Request::Status,
    }
}

/// What is to be otherwise of a volume.
fn setting_request(args: &SetVolumeArgs) -> Request {
    let VolumeSetting { security, protected, owners, no_owner } = &args.setting;
    Request::SetVolume {
        name: args.name.clone(),
        security: security.map(|level| level.to_string()),
        protected: protected.map(|switch| switch == Switch::On),
        owners: (*no_owner || !owners.is_empty()).then(|| owners.clone()),
    }
}

/// What is asked about pools.
fn content_request(command: &ContentCommand) -> Request {
    match command {
        ContentCommand::Pools => Request::Pools,
        ContentCommand::ForgetPool { name } => Request::ForgetPool { name: name.clone() },
        ContentCommand::DeleteVolume { name, force, snapshots } => {
            Request::DeleteVolume { name: name.clone(), force: *force, snapshots: *snapshots }
        }
        ContentCommand::Snapshot { volumes, name, protected } => {
            Request::Snapshot { volumes: volumes.clone(), name: name.clone(), protected: *protected }
        }
        ContentCommand::Snapshots { volume } => Request::Snapshots { volume: volume.clone() },
        ContentCommand::SetSnapshot { snapshot, protected } => {
            Request::SetSnapshot { snapshot: snapshot.clone(), protected: *protected == Switch::On }
        }
        ContentCommand::DeleteSnapshot { snapshot } => Request::DeleteSnapshot { snapshot: snapshot.clone() },
        ContentCommand::Clone { snapshot, name, target } => {
            Request::Clone { snapshot: snapshot.clone(), name: name.clone(), target: target.clone() }
        }
        ContentCommand::Rollback { snapshot, force, keep } => {
            Request::Rollback { snapshot: snapshot.clone(), force: *force, keep: keep.clone() }
        }
    }
}

fn client_settings(args: &SettingsArgs) -> anyhow::Result<ClientSettings> {
    let psk = match (&args.own_password_file, &args.own_secret_file) {
        (Some(file), _) => Some(keys::psk(&read_password(file)?)?),
        (None, file) => file.as_deref().map(keys::secret).transpose()?,
    };
    Ok(ClientSettings {
        name: args.name.clone(),
        psk: psk.map(Secret),
        no_password: args.no_own_password,
        manage: args.manage,
        read_only: args.read_only,
        lock_media: args.lock_media,
        volumes: args.volumes.clone(),
        weight: args.weight,
        cap_bytes_per_second: args.cap.map(|cap| cap.0),
        window_packets: args.window,
        compression: args.compression,
        transfer_max_bytes: args.max_transfer.map(|size| u32::try_from(size.0).unwrap_or(u32::MAX)),
        priority: args.priority,
    })
}

/// Asks the server, and prints what it says.
///
/// # Errors
/// Why it was refused, or could not be asked.
pub(crate) fn run(
    command: &ManageCommand,
    server: Asked,
    terms: AskingArgs,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    let gathers = matches!(command, ManageCommand::Tree | ManageCommand::Standing(StandingCommand::SupportBundle));
    if gathers && (terms.dry_run || terms.if_revision.is_some()) {
        return Err(misuse("--dry-run and --if-revision go with what changes something"));
    }
    match command {
        ManageCommand::Events(args) if args.follow => return told::follow_events(args, terms.json, ask),
        ManageCommand::Audit(args) => return told::audit(args, terms.json, ask),
        ManageCommand::Tree => return tree(terms.json, ask),
        ManageCommand::Target(TargetCommand::Targets) => return Ok(output::print(&targets::show(terms.json, ask)?)?),
        ManageCommand::Standing(StandingCommand::SupportBundle) => return support_bundle(ask),
        ManageCommand::Sessions(args) if args.rate.is_some() && !terms.json => return sessions::show_rates(args, ask),
        _ => {}
    }
    let is_awaited = matches!(command, ManageCommand::Job { wait: true, .. });
    Ok(output::print(&show(&pursue(request(command, server)?, is_awaited, terms, ask)?, terms.form())?)?)
}

/// Asks the server this, and prints what it says.
///
/// # Errors
/// Why it was refused, or could not be asked.
pub(crate) fn run_request(
    request: Request,
    terms: AskingArgs,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    Ok(output::print(&show(&pursue(request, false, terms, ask)?, terms.form())?)?)
}

/// The same, and waits until that is over, however long it takes.
///
/// # Errors
/// [`Refused`] when nothing was done. With any other one it may have been done all the same.
pub(crate) fn run_to_its_end(
    request: Request,
    terms: AskingArgs,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    Ok(output::print(&show(&pursue(request, true, terms, ask)?, terms.form())?)?)
}

/// What the server was asked for it has not done, and says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

/// Prints targets, units, groups, sessions and volumes as a tree.
fn tree(as_json: bool, ask: impl Fn(&Request) -> anyhow::Result<Answer>) -> anyhow::Result<()> {
    let answers = (ask(&Request::Status)?, ask(&Request::Sessions)?);
    let (Answer::Status(status), Answer::Sessions(sessions)) = answers else {
        anyhow::bail!("the server's answer cannot be read: is it another version?")
    };
    let text = if as_json {
        format!("{:#}\n", serde_json::json!({ "schema": SCHEMA, "status": status, "sessions": sessions }))
    } else {
        tree::show_tree(&status, &sessions)
    };
    Ok(output::print(&text)?)
}

/// Prints what those who help want to know.
fn support_bundle(ask: impl Fn(&Request) -> anyhow::Result<Answer>) -> anyhow::Result<()> {
    let bundle = SupportBundle::gather(|request| ask(&request))?;
    Ok(output::print(&format!("{:#}\n", serde_json::to_value(bundle)?))?)
}

/// Asks for a request what it comes to. Whoever wants to wait for a job asks again until it is over.
///
/// # Errors
/// Why it was refused.
fn pursue(
    request: Request,
    is_awaited: bool,
    terms: AskingArgs,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<Answer> {
    let request = match terms.if_revision {
        Some(_) if !request.is_change() => return Err(misuse("--if-revision goes with what changes something")),
        Some(revision) => Request::IfRevision { revision, request: rehearsed(request, terms.dry_run)?.into() },
        None => rehearsed(request, terms.dry_run)?,
    };
    let request =
        if terms.no_wait && request.is_change() { Request::Start { request: request.into() } } else { request };
    let mut answer = ask(&request)?;
    loop {
        match answer {
            // The server may have let too many others wait to let this one.
            Answer::Job(JobStatus { id, state: JobState::Running, .. }) if is_awaited => {
                thread::sleep(ASK_AGAIN);
                // Who is refused an answer has been refused nothing else: the job goes on.
                let unknown = |error| anyhow::anyhow!("the server does not tell how its job {id} ends: {error:#}");
                answer = ask(&Request::Job { id, wait: true }).map_err(unknown)?;
            }
            Answer::Job(JobStatus { refused: Some(reason), .. }) if is_awaited => return Err(Refused(reason).into()),
            answer => return Ok(answer),
        }
    }
}

/// The request, or that to tell only what it would do.
fn rehearsed(request: Request, dry_run: bool) -> anyhow::Result<Request> {
    match request {
        request if !dry_run => Ok(request),
        Request::Reload { force, reset, .. } => Ok(Request::Reload { force, dry_run, reset }),
        request if request.is_change() => Ok(Request::DryRun { request: request.into() }),
        _ => Err(misuse("--dry-run goes with what changes something")),
    }
}

/// What was done.
///
/// # Errors
/// [`Refused`].
pub(crate) fn answer_of(response: Response) -> anyhow::Result<Answer> {
    match response {
        Response::Done(answer) => Ok(answer),
        Response::Refused(refusal) => Err(Refused(refusal.reason).into()),
    }
}

/// The answer as tables, or as JSON.
fn show(answer: &Answer, form: Form) -> anyhow::Result<String> {
    if form != Form::Json {
        return Ok(table_of(answer, form == Form::Wide));
    }
    let mut written = serde_json::to_value(answer)?;
    if let Some(object) = written.as_object_mut() {
        object.insert("schema".into(), SCHEMA.into());
    }
    Ok(format!("{written:#}\n"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const TERMS: AskingArgs =
        AskingArgs { no_wait: false, if_revision: None, dry_run: false, wide: false, json: false };

    fn job(state: JobState, refused: Option<&str>) -> Answer {
        Answer::Job(JobStatus {
            id: 7,
            request: serde_json::Value::Null,
            by: String::new(),
            state,
            progress: None,
            copy: None,
            begun: String::new(),
            ended: None,
            changed: Vec::new(),
            refused: refused.map(str::to_owned),
            code: None,
        })
    }

    #[test]
    fn what_takes_long_is_pursued_to_its_end_and_only_a_refusal_says_that_it_is_not_done() {
        let request = || Request::RevokeDvd { name: "cam".into() };
        let ends = |last: anyhow::Result<Answer>| {
            let (asked, last) = (RefCell::new(Vec::new()), RefCell::new(Some(last)));
            let ended = run_to_its_end(request(), TERMS, |request| {
                asked.borrow_mut().push(request.clone());
                if asked.borrow().len() < 3 { Ok(job(JobState::Running, None)) } else { last.take().unwrap() }
            });
            let ask_again = Request::Job { id: 7, wait: true };
            assert_eq!(asked.into_inner(), [request(), ask_again.clone(), ask_again]);
            ended
        };
        ends(Ok(job(JobState::Done, None))).unwrap();
        let refused = ends(Ok(job(JobState::Refused, Some("no")))).unwrap_err();
        assert_eq!((refused.to_string().as_str(), refused.is::<Refused>()), ("no", true));
        let unknown = ends(Err(Refused("there is no job 7".to_owned()).into())).unwrap_err();
        assert!(!unknown.is::<Refused>() && unknown.to_string().contains("there is no job 7"), "{unknown}");
        let refused = run_to_its_end(request(), TERMS, |_| Err(Refused("no".to_owned()).into())).unwrap_err();
        assert!(refused.is::<Refused>());
    }
}
