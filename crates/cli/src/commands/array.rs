//! `sanwire array`: arrays of volumes that are not in use, or that are attached on this host.

mod attached;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use sanwire_array::{Arrangement, Array, ArrayError, Plan, Standing, Table, create, grow};
use sanwire_attach::{Registry, RegistryError};
use sanwire_core::Size;
use sanwire_remote::array::{Members, Opening, Purpose, drive, fresh, step};
use sanwire_remote::volume::release_all;
use sanwire_store::{CompletionQueue, Request, Started, Store};

use super::device;
use crate::args::{ArrayArgs, ArrayCommand, CreateArgs, ForceArgs, GuardArgs, PathArgs, UseArgs};
use crate::failure::misuse;
use crate::output;

/// How long servers are waited for to take back what was reserved there.
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);

/// Makes, shows or mends arrays.
pub(crate) fn run(args: &ArrayArgs) -> anyhow::Result<()> {
    // An attachment of this host has the same rights at other servers as this command.
    let registry = match Registry::open(device::helper) {
        // Who has no place for attachments has none.
        Err(RegistryError::NoPlace) => None,
        registry => Some(registry?),
    };
    let _claim = match registry.as_ref().zip(args.command.changed()) {
        None => None,
        Some((registry, name)) => {
            let shown = format!("array:{name}");
            match registry.claim(&shown, &shown, false) {
                Err(RegistryError::Attached { place, .. }) => {
                    return attached::run(&args.command, registry, &shown, &place);
                }
                claim => Some(claim?),
            }
        }
    };
    let text = work(args);
    release_all(RELEASE_PATIENCE);
    Ok(output::print(&text?)?)
}

fn work(args: &ArrayArgs) -> anyhow::Result<String> {
    match &args.command {
        ArrayCommand::Create(args) => make(args),
        ArrayCommand::Show { stores, path } => show(stores, *path),
        ArrayCommand::Scrub(args) => scrub(args),
        ArrayCommand::Replace { name, number, store, members, guard } => {
            replace(name, *number, store, (members.as_slice(), opening(*guard)))
        }
        ArrayCommand::Grow { array, added } => grow_by(array, added),
        ArrayCommand::Force(args) => force(args),
    }
}

fn make(args: &CreateArgs) -> anyhow::Result<String> {
    if args.mirror.is_none() && !args.stripe && !args.concat {
        return Err(misuse("say what it is to be: --mirror, --stripe or --concat"));
    }
    let copies = match args.mirror {
        None => 1,
        Some(0) => args.stores.len(),
        Some(copies) => copies,
    };
    let chunk_bytes = u32::try_from(args.chunk.0).map_err(|_| misuse("a chunk has 4K to 1M"))?;
    let arrangement = if args.stripe { Arrangement::Stripe { chunk_bytes } } else { Arrangement::Concat };
    let plan = Plan { name: args.name.clone(), arrangement, copies, force: args.force };
    let members = open_all(&args.stores, opening(args.guard))?;
    members.warn_of_unfenced(&args.name);
    let table = with_ids(|id| create(&plan, &members.candidates, id, &mut drive))?;
    Ok(format!(
        "array {} is made, of {}\n{}",
        table.name,
        Size(table.layout().length_bytes()),
        describe(&table, &BTreeMap::new())
    ))
}

/// How members are opened that are written.
fn opening(GuardArgs { unfenced, path: PathArgs { iser_path } }: GuardArgs) -> Opening {
    Opening { purpose: if unfenced { Purpose::UseUnfenced } else { Purpose::Use }, iser_path }
}

/// All of these, or none.
fn open_all(stores: &[String], opening: Opening) -> anyhow::Result<Members> {
    let members = Members::open_only(stores, opening);
    match members.failures.first() {
        Some((text, why)) => anyhow::bail!("{text} cannot be opened: {why}"),
        None => Ok(members),
    }
}

/// Does what takes identities that nothing has had, as long as there are such.
fn with_ids(work: impl FnOnce(&mut dyn FnMut() -> [u8; 16]) -> Result<Table, ArrayError>) -> anyhow::Result<Table> {
    let mut failure = None;
    let mut id = || {
        fresh().unwrap_or_else(|error| {
            failure = Some(error);
            [0; 16]
        })
    };
    let made = work(&mut id);
    failure.map_or(Ok(()), Err)?;
    Ok(made?)
}

fn show(stores: &[String], PathArgs { iser_path }: PathArgs) -> anyhow::Result<String> {
    let members = Members::open_only(stores, Opening { purpose: Purpose::Look, iser_path });
    let labels = members.labels();
    let mut text = String::new();
    let mut names: Vec<&str> = labels.iter().map(|(_, label)| label.table.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let found = members.find(name)?;
        let places = found.members.iter().enumerate();
        let here = places.filter_map(|(number, at)| Some((number, labels[(*at)?].0.clone()))).collect();
        let size = Size(found.table.layout().length_bytes());
        text += &format!("array {name}, {size}, {}\n{}", shape(&found.table), describe(&found.table, &here));
        if let Err(error) = found.check() {
            text += &format!("{error}\n");
        }
    }
    for candidate in &members.candidates {
        if !labels.iter().any(|(place, _)| *place == candidate.place) {
            text += &format!("{}: no member of an array\n", candidate.place);
        }
    }
    for (place, why) in &members.failures {
        text += &format!("{place} cannot be opened: {why}\n");
    }
    Ok(text)
}

pub(super) fn shape(table: &Table) -> String {
    let groups = table.members.len() / table.copies;
    let copies = if table.copies > 1 { format!("{} copies", table.copies) } else { "no copies".to_owned() };
    match table.arrangement {
        _ if groups == 1 => copies,
        Arrangement::Concat => format!("{groups} parts one behind the other, {copies}"),
        Arrangement::Stripe { chunk_bytes } => {
            format!("{groups} parts in stripes of {}, {copies}", Size(chunk_bytes.into()))
        }
    }
}

/// The members, and where they were found among what was looked at.
pub(super) fn describe(table: &Table, here: &BTreeMap<usize, String>) -> String {
    let rows: Vec<_> = table
        .members
        .iter()
        .enumerate()
        .map(|(number, member)| {
            let standing = match member.standing {
                Standing::In => "in".to_owned(),
                Standing::Out { is_whole: true, .. } => "new, not copied yet".to_owned(),
                Standing::Out { .. } => "out: lacks what was written since".to_owned(),
            };
            let place = here.get(&number).unwrap_or(&member.place).clone();
            [(number + 1).to_string(), standing, Size(member.data_bytes).to_string(), place]
        })
        .collect();
    output::table(["MEMBER", "STANDING", "SIZE", "STORE"], &rows)
}

fn scrub(UseArgs { name, stores, guard }: &UseArgs) -> anyhow::Result<String> {
    let array = assemble(name, stores, opening(*guard), false)?;
    bring_up_to_date(&array)?;
    let different = array.scrub(&mut drive)?;
    bring_up_to_date(&array)?;
    tidy(&array)?;
    let state = state(&array);
    Ok(match different {
        0 => format!("all copies that are there are the same\n{state}"),
        _ => format!(
            "{different} pieces of up to 256 KiB differed, and were copied from the first member that is in\n{state}"
        ),
    })
}

fn replace(name: &str, number: usize, store: &str, (members, opening): (&[String], Opening)) -> anyhow::Result<String> {
    let array = assemble(name, members, opening, false)?;
    let count = array.members().len();
    let at = number.checked_sub(1).filter(|at| *at < count);
    let at = at.ok_or_else(|| misuse(format!("array {name} has members 1 to {count}, and no member {number}")))?;
    let new = Members::open_only(&[store.to_owned()], opening);
    let candidate = match (&new.candidates[..], &new.failures[..]) {
        ([candidate], _) => candidate,
        (_, [(text, why), ..]) => anyhow::bail!("{text} cannot be opened: {why}"),
        _ => anyhow::bail!("{store} cannot be opened"),
    };
    array.replace(at, candidate, fresh()?, &mut drive)?;
    bring_up_to_date(&array)?;
    tidy(&array)?;
    Ok(format!("member {number} of array {name} is {store} now, and has all\n{}", state(&array)))
}

fn grow_by(UseArgs { name, stores, guard }: &UseArgs, added: &[String]) -> anyhow::Result<String> {
    let members = opened(name, stores, opening(*guard))?;
    let array = members.assemble(name, false)?;
    bring_up_to_date(&array)?;
    // Only then it is known that nothing differs.
    let flushed = array.clone();
    drive(Box::new(move |completions| flushed.start(Request::Flush, completions))).context("a member failed")?;
    tidy(&array)?;
    let before_bytes = array.table().layout().length_bytes();
    drop(array);
    let others = open_all(added, opening(*guard))?;
    let table = with_ids(|id| grow(name, &members.candidates, &others.candidates, id, &mut drive))?;
    let after_bytes = table.layout().length_bytes();
    Ok(format!(
        "array {name} has {} now, {} before\n{}",
        Size(after_bytes),
        Size(before_bytes),
        describe(&table, &BTreeMap::new())
    ))
}

fn force(ForceArgs { name, stores, guard }: &ForceArgs) -> anyhow::Result<String> {
    let array = assemble(name, stores, opening(*guard), true)?;
    tidy(&array)?;
    Ok(format!("array {name} is what is there now\n{}", state(&array)))
}

fn assemble(name: &str, stores: &[String], opening: Opening, force: bool) -> anyhow::Result<Array> {
    let members = match force {
        true => guarded(name, Members::open_only(stores, opening), opening)?,
        false => opened(name, stores, opening)?,
    };
    Ok(members.assemble(name, force)?)
}

/// The members that are written, and those that their labels name.
fn opened(name: &str, stores: &[String], opening: Opening) -> anyhow::Result<Members> {
    if stores.is_empty() {
        return Err(misuse(format!("array:{name} is not attached on this host: name a member of it that is there")));
    }
    guarded(name, Members::open(name, stores, opening), opening)
}

/// What nothing keeps from other hosts is refused, or told.
fn guarded(name: &str, members: Members, opening: Opening) -> anyhow::Result<Members> {
    members.check_guarded(opening.purpose).map_err(|why| anyhow::anyhow!("array {name}: {why}"))?;
    members.warn_of_unfenced(name);
    Ok(members)
}

fn state(array: &Array) -> String {
    describe(&array.table(), &BTreeMap::new())
}

/// Copies until all members that are there have all.
fn bring_up_to_date(array: &Array) -> anyhow::Result<()> {
    run_out(|completions| array.resync(completions))?;
    match array.members().iter().position(|member| member.is_present && member.behind_bytes > 0) {
        Some(at) => anyhow::bail!("member {} could not be brought up to date", at + 1),
        None => Ok(()),
    }
}

fn tidy(array: &Array) -> anyhow::Result<()> {
    run_out(|completions| array.tidy(completions))
}

/// Drives one step after the other, as long as there is one.
fn run_out(begin: impl Fn(&CompletionQueue) -> Option<Started>) -> anyhow::Result<()> {
    while let Some(end) = step(&begin) {
        end.context("a member failed")?;
    }
    Ok(())
}
