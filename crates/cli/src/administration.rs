//! Managing a running server: from the words of the command line to a request, and to what is printed of the answer.

mod tables;

use std::thread;
use std::time::Duration;

use sanwire_server::{Answer, ClientSettings, Events, JobState, JobStatus, Request, Response, Secret};

use self::tables::{show_events, table_of};
use crate::args::{self, AskingArgs, ManageCommand, SettingsArgs};
use crate::config::read_password;
use crate::failure::misuse;
use crate::{keys, output};

/// How soon it is asked again whether a job is over, or something has happened.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What is asked. Passwords are made secrets of here: the server never learns them.
fn request(command: &ManageCommand) -> anyhow::Result<Request> {
    Ok(match command {
        ManageCommand::Status => Request::Status,
        ManageCommand::Sessions => Request::Sessions,
        ManageCommand::Statistics => Request::Statistics,
        ManageCommand::Metrics => Request::Metrics,
        ManageCommand::Jobs => Request::Jobs,
        ManageCommand::Events { since, .. } => Request::Events { since: since.clone(), wait: false },
        ManageCommand::Job { id, wait } => Request::Job { id: *id, wait: *wait },
        ManageCommand::AddVolume { volume, target, renew, adopt } => {
            args::check_volume(volume)?;
            Request::AddVolume { volume: volume.clone(), target: target.clone(), renew: *renew, adopt: *adopt }
        }
        ManageCommand::RemoveVolume { name, force } => Request::RemoveVolume { name: name.clone(), force: *force },
        ManageCommand::ResizeVolume { name, size } => {
            Request::ResizeVolume { name: name.clone(), size: size.0.to_string() }
        }
        ManageCommand::EjectVolume { name, force } => Request::EjectVolume { name: name.clone(), force: *force },
        ManageCommand::LoadVolume { name, store } => Request::LoadVolume { name: name.clone(), store: store.clone() },
        ManageCommand::SetVolume { name, security } => {
            Request::SetVolume { name: name.clone(), security: security.to_string() }
        }
        ManageCommand::MapVolume { name, lun, target, force } => {
            Request::MapVolume { name: name.clone(), lun: *lun, target: target.clone(), force: *force }
        }
        ManageCommand::UnmapVolume { name, target, force } => {
            Request::UnmapVolume { name: name.clone(), target: target.clone(), force: *force }
        }
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
        ManageCommand::SetAccessState { group, state, target } => {
            Request::SetAccessState { group: *group, state: (*state).into(), target: target.clone() }
        }
        ManageCommand::Reload { force, dry_run, reset } => {
            Request::Reload { force: *force, dry_run: *dry_run, reset: *reset }
        }
    })
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
    terms: AskingArgs,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    if let ManageCommand::Events { follow: true, since } = command {
        return follow(since.clone(), terms.json, ask);
    }
    Ok(output::print(&show(&pursue(command, terms, ask)?, terms.json)?)?)
}

/// Prints what has happened, and what happens, until that fails or nobody reads it.
fn follow(
    mut since: Option<String>,
    as_json: bool,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    loop {
        let Answer::Events(told) = ask(&Request::Events { since, wait: true })? else {
            anyhow::bail!("the server's answer cannot be read: is it another version?")
        };
        let text = if as_json { lines_of(&told)? } else { show_events(&told) };
        if !output::print_while_read(&text)? {
            return Ok(());
        }
        if told.events.is_empty() {
            // The server may have let too many others wait to let this one.
            thread::sleep(ASK_AGAIN);
        }
        since = Some(told.cursor);
    }
}

/// Each event as a line of JSON; before them one that says that some were missed.
fn lines_of(told: &Events) -> serde_json::Result<String> {
    let is_missed = told.gone.is_some() || told.restarted;
    let missed = is_missed.then(|| serde_json::json!({ "gone": told.gone, "restarted": told.restarted }).to_string());
    let events = told.events.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(missed.into_iter().chain(events).map(|line| format!("{line}\n")).collect())
}

/// Asks for a request what it comes to. Whoever wants to wait for a job asks again until it is over.
///
/// # Errors
/// Why it was refused.
fn pursue(
    command: &ManageCommand,
    terms: AskingArgs,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<Answer> {
    let request = request(command)?;
    let is_awaited = matches!(command, ManageCommand::Job { wait: true, .. });
    let request = match terms.if_revision {
        Some(_) if !request.is_change() => return Err(misuse("--if-revision goes with what changes something")),
        Some(revision) => Request::IfRevision { revision, request: request.into() },
        None => request,
    };
    let request =
        if terms.no_wait && request.is_change() { Request::Start { request: request.into() } } else { request };
    loop {
        match ask(&request)? {
            // The server may have let too many others wait to let this one.
            Answer::Job(JobStatus { state: JobState::Running, .. }) if is_awaited => thread::sleep(ASK_AGAIN),
            Answer::Job(JobStatus { refused: Some(reason), .. }) if is_awaited => anyhow::bail!(reason),
            answer => return Ok(answer),
        }
    }
}

/// What was done.
///
/// # Errors
/// Why it was refused.
pub(crate) fn answer_of(response: Response) -> anyhow::Result<Answer> {
    match response {
        Response::Done(answer) => Ok(answer),
        Response::Refused(refusal) => anyhow::bail!(refusal.reason),
    }
}

/// The answer as tables, or as JSON.
fn show(answer: &Answer, as_json: bool) -> anyhow::Result<String> {
    Ok(if as_json { format!("{}\n", serde_json::to_string_pretty(answer)?) } else { table_of(answer) })
}
