//! Volumes that are derived from each other, over all wires at once: who finds which, until it is revoked, and what each reads, writes and
//! discards, compared with a model that knows for each which blocks it has.

mod oracle;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use sanwire_initiator::{Client, ClientOptions, ConnectError, Url, Volume, VolumeError};
use sanwire_iscsi::ChapSecret;

use self::oracle::{BLOCK_BYTES, Blocks, DISK_BLOCKS, Deed, Principal, Tree, Way, below};
use super::{dvd_ok, serve};
use crate::harness::{AUTHORITY, CLIENT_ADDRESS, Random, SERVER_ADDRESS, Server, World, pattern};

/// How many of these there are for each tree; in the long form it is a million with all trees.
const DEEDS: usize = 20_000;
const DEEDS_LONG: usize = 50_000;
/// Between two of them something is revoked.
const PARTS: usize = 2;
/// Blocks of one of them at the most: a frame of AoE carries as many, so on no wire they are two commands.
const DEED_BLOCKS_MAX: usize = 8;

/// Such frames need it.
const MTU: u32 = 9000;

const INTERFACES: [&str; 2] = ["lan0", "lan1"];
const INITIATORS: [&str; 2] = ["iqn.2026-11.org.example:host", "iqn.2026-11.org.example:other"];
/// The users of CHAP, and what each knows.
const USERS: [&str; 2] = ["alice", "bob"];
const SECRETS: [&str; 2] = ["alice has a secret", "bob has another one"];

/// A server that is there has answered by then, also on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// Who does not answer a station that it does not know says nothing at all.
const SILENCE: Duration = Duration::from_secs(1);

/// Each way by which somebody comes: both keys on each wire that knows keys, two initiators by iSCSI and by iSER, which log in as nobody or
/// as a user each, and two stations.
fn ways() -> Vec<Way> {
    let nobody = |scheme| Way { scheme, key: None, user: None, initiator: None, station: None };
    let of_key = |key: usize| {
        let by = |scheme, station| Way { key: Some(key), station, ..nobody(scheme) };
        [by("hs+eth", Some(0)), by("hs+ip", None), by("hdsp", Some(0)), by("visa", None), by("visa+tcp", None)]
    };
    let of_name = |name: usize| ["iscsi", "iser"].map(|scheme| Way { initiator: Some(name), ..nobody(scheme) });
    let of_user = |user: usize| of_name(user).map(|way| Way { user: Some(user), ..way });
    let aoe = |station| Way { station: Some(station), ..nobody("aoe") };
    let initiators = (0..2).flat_map(of_name).chain((0..2).flat_map(of_user));
    (0..2).flat_map(of_key).chain(initiators).chain((0..2).map(aoe)).collect()
}

impl Way {
    /// Whether one session has all units: else each has its own.
    fn has_all_units(&self) -> bool {
        self.user.is_some() || !matches!(self.scheme, "hdsp" | "iscsi" | "iser" | "aoe")
    }

    /// Whether who uses a unit hears that it is gone. Where its target goes with it, he waits for that.
    fn hears_of_ends(&self) -> bool {
        self.has_all_units() || self.scheme == "hdsp"
    }

    /// Where the unit is, that way.
    fn url(&self, world: &World, at: usize) -> Url {
        let (scheme, volume) = (self.scheme, name(at));
        let interface = INTERFACES[self.station.unwrap_or(0)];
        let text = match scheme {
            "aoe" => format!("aoe://{interface}/7.{at}"),
            "iscsi" | "iser" => match self.user {
                Some(user) => format!("{scheme}://{}@{SERVER_ADDRESS}/{AUTHORITY}:users/{at}", USERS[user]),
                None => format!("{scheme}://{SERVER_ADDRESS}/{AUTHORITY}:{volume}/0"),
            },
            // By its address: under a name others might answer, too, and are waited for.
            "hs+eth" | "hdsp" => format!("{scheme}://{interface}/{}/{volume}", world.server_mac()),
            _ => format!("{scheme}://{SERVER_ADDRESS}/{volume}"),
        };
        text.parse().expect("a URL")
    }

    /// What the client brings that comes this way; `keys`: the owners of the keys.
    fn options(&self, keys: &[ClientOptions; 2]) -> ClientOptions {
        let mut options = keys[self.key.unwrap_or(0)].clone();
        options.iscsi.initiator = self.initiator.map(|name| INITIATORS[name].parse().expect("a name"));
        options.iscsi.secret = self.user.map(|user| ChapSecret::new(SECRETS[user].into()).expect("a long secret"));
        (options.connect_patience, options.reconnect_patience) = (PATIENCE, Some(PATIENCE));
        options.memory_bytes = 1 << 20;
        options.links.max = 1;
        options
    }
}

fn name(at: usize) -> String {
    if at == 0 { "disk".to_owned() } else { format!("u{at}") }
}

/// A session, and the units that are open in it.
struct User {
    way: Way,
    client: Client,
    volumes: Vec<(usize, Volume)>,
}

impl User {
    fn connect(way: Way, url: &Url, options: &ClientOptions) -> Result<User, ConnectError> {
        Ok(User { way, client: Client::connect(url, options)?, volumes: Vec::new() })
    }

    /// A session for this unit alone.
    fn of_one(world: &World, way: Way, at: usize, options: &ClientOptions) -> Result<User, ConnectError> {
        let url = way.url(world, at);
        let mut user = User::connect(way, &url, options)?;
        user.open(at, &url).map(|()| user)
    }

    fn open(&mut self, at: usize, url: &Url) -> Result<(), ConnectError> {
        let volume = self.client.open(url.volume().expect("a volume"))?;
        self.volumes.push((at, volume));
        Ok(())
    }
}

/// Has everybody try to open each unit: those open it whom the model admits, and nobody else.
fn users(world: &World, tree: &Tree, keys: &[ClientOptions; 2]) -> Vec<User> {
    let units = || 0..tree.units().len();
    // First, as long as no session waits meanwhile.
    for way in ways().into_iter().filter(|way| !way.has_all_units()) {
        let options = ClientOptions { connect_patience: SILENCE, ..way.options(keys) };
        for at in units().filter(|at| !tree.admits(*at, &way)) {
            let opened = User::of_one(world, way, at, &options);
            assert!(opened.is_err(), "{way:?} opens unit {at}: {:?}", tree.units()[at]);
        }
    }
    let mut users = Vec::new();
    for way in ways() {
        let options = way.options(keys);
        if !way.has_all_units() {
            let admitted = units().filter(|at| tree.admits(*at, &way));
            users.extend(admitted.map(|at| {
                let opened = User::of_one(world, way, at, &options);
                opened.unwrap_or_else(|error| panic!("{way:?}, unit {at}: {error}: {:?}", tree.units()[at]))
            }));
            continue;
        }
        let mut user = User::connect(way, &way.url(world, 0), &options).expect("a session");
        for at in units() {
            let opened = user.open(at, &way.url(world, at));
            let told = opened.as_ref().err().map(ToString::to_string);
            assert_eq!(opened.is_ok(), tree.admits(at, &way), "{way:?}, unit {at}: {told:?}: {:?}", tree.units()[at]);
        }
        users.push(user);
    }
    users
}

/// Does something with blocks of a unit; gives what it has read.
async fn give(volume: &Volume, deed: Deed, blocks: Blocks, data: Option<Vec<u8>>) -> Result<Vec<u8>, VolumeError> {
    let (offset_bytes, length) = ((blocks.0 * BLOCK_BYTES) as u64, blocks.1 * BLOCK_BYTES);
    match deed {
        Deed::Read => Ok(volume.read(offset_bytes, volume.buffer(length).await?).await?.to_vec()),
        Deed::Write => volume.write(offset_bytes, data.unwrap_or_default().into()).await.map(|()| Vec::new()),
        Deed::Discard => volume.discard(offset_bytes, length as u64).await.map(|()| Vec::new()),
    }
}

/// Whether the server has said that it does not do it, or its unit that it would not.
fn is_refusal(error: &VolumeError) -> bool {
    use VolumeError::{Closed, Disconnected, Misaligned, OutOfRange, TimedOut, TooLong, WritesLost};
    let is_other = matches!(
        error,
        Closed
            | Disconnected { .. }
            | Misaligned { .. }
            | OutOfRange { .. }
            | TimedOut { .. }
            | TooLong { .. }
            | WritesLost { .. }
    );
    !is_other
}

/// Revokes one of the units that are left, with what is derived from it. Who has one of them open is told of it, and nobody finds that one any
/// more.
fn revoke(world: &World, tree: &mut Tree, keys: &[ClientOptions; 2], users: &mut Vec<User>, random: &mut Random) {
    let left: Vec<usize> = (1..tree.units().len()).filter(|at| !tree.is_revoked(*at)).collect();
    let revoked = left[below(random, left.len())];
    let found: Vec<Way> = ways().into_iter().filter(|way| tree.admits(revoked, way)).collect();
    dvd_ok(&world.scratch, &["revoke", &name(revoked)]);
    tree.revoke(revoked);
    for User { way, client, volumes } in users.iter_mut() {
        for (at, volume) in volumes.extract_if(.., |(at, _)| tree.is_revoked(*at)) {
            // What it could read before.
            let lba = (0..tree.units()[at].blocks()).find(|lba| tree.judge(at, Deed::Read, (*lba, 1)).is_some());
            let Some(lba) = lba.filter(|_| way.hears_of_ends()) else { continue };
            let done = client.block_on(give(&volume, Deed::Read, (lba, 1), None));
            assert!(done.as_ref().is_err_and(is_refusal), "{way:?} reads unit {at}, which is revoked: {done:?}");
        }
    }
    users.retain(|user| !user.volumes.is_empty());
    for user in users.iter_mut().filter(|user| user.way.has_all_units()) {
        let url = user.way.url(world, revoked);
        assert!(user.open(revoked, &url).is_err(), "{:?} opens unit {revoked}, which is revoked", user.way);
    }
    for way in found.into_iter().filter(|way| !way.has_all_units()) {
        let options = ClientOptions { connect_patience: SILENCE, ..way.options(keys) };
        let opened = User::of_one(world, way, revoked, &options);
        assert!(opened.is_err(), "{way:?} opens unit {revoked}, which is revoked");
    }
}

/// How often something was done, and how often it was refused, by wires.
type Counts = BTreeMap<&'static str, [usize; 2]>;

/// Does what the seed says, by whoever has opened a unit, and compares what comes of it with what the disk holds.
fn work(users: &mut [User], tree: &Tree, random: &mut Random, content: &mut [u8], counts: &mut Counts) {
    let bytes_of = |block: &usize| block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
    let volumes_of = |(user, of): (usize, &User)| (0..of.volumes.len()).map(move |volume| (user, volume));
    let open: Vec<(usize, usize)> = users.iter().enumerate().flat_map(volumes_of).collect();
    for number in 0..deeds() / PARTS {
        let (user, volume) = open[below(random, open.len())];
        let User { way, client, volumes } = &mut users[user];
        let (at, volume) = &volumes[volume];
        let deed = [Deed::Read, Deed::Read, Deed::Write, Deed::Write, Deed::Discard][below(random, 5)];
        let all = tree.units()[*at].blocks();
        let lba = below(random, all);
        let count = 1 + below(random, DEED_BLOCKS_MAX.min(all - lba));
        let foreseen = tree.judge(*at, deed, (lba, count));
        let data = (deed == Deed::Write).then(|| pattern(random.next(), count * BLOCK_BYTES));
        let done = client.block_on(give(volume, deed, (lba, count), data.clone()));
        let what = format!("{number}: {deed:?} of {count} blocks from {lba} on of unit {at} by {way:?}");
        let counted = counts.entry(way.scheme).or_default();
        let (read, touched) = match (done, foreseen) {
            (Ok(read), Some(touched)) => (read, touched),
            (Err(error), None) if is_refusal(&error) => {
                counted[1] += 1;
                continue;
            }
            (done, foreseen) => panic!("{what}: {done:?}, and {foreseen:?} was expected; {:?}", tree.units()[*at]),
        };
        counted[0] += 1;
        match deed {
            Deed::Read => {
                let expected: Vec<u8> = touched.iter().flat_map(|block| &content[bytes_of(block)]).copied().collect();
                assert!(read == expected, "{what}: it is not what was written there");
            }
            Deed::Write | Deed::Discard => {
                let data = data.unwrap_or_else(|| vec![0; count * BLOCK_BYTES]);
                for (block, bytes) in touched.iter().zip(data.chunks(BLOCK_BYTES)) {
                    content[bytes_of(block)].copy_from_slice(bytes);
                }
            }
        }
    }
}

/// Each of so many units in a target of its own, for whoever it admits, and all of them in one for users of CHAP.
fn targets(units: usize) -> String {
    let own = |at| {
        let name = name(at);
        format!("[[target]]\nname = \"{AUTHORITY}:{name}\"\nlun = {{ 0 = \"{name}\" }}\n")
    };
    let all: Vec<String> = (0..units).map(|at| format!("{at} = \"{}\"", name(at))).collect();
    let user = |(user, secret)| format!("{{ user = \"{user}\", secret = \"{secret}\" }}");
    let users: Vec<String> = USERS.iter().zip(SECRETS).map(user).collect();
    let of_users = format!(
        "[[target]]\nname = \"{AUTHORITY}:users\"\nlun = {{ {} }}\nchap = [{}]\n",
        all.join(", "),
        users.join(", ")
    );
    (0..units).map(own).chain([of_users]).collect()
}

/// Serves the disk, which is this file, and all that is derived from it.
fn serve_tree(world: &World, tree: &Tree, store: &str, keys: &[ClientOptions; 2]) -> Server {
    let stations = [world.client_mac().to_owned(), world.client_path_mac(1)];
    let named = |principal: &Principal| match principal {
        Principal::Any => "any".to_owned(),
        Principal::Key(key) => format!("key:{}", keys[*key].identity.client_id()),
        Principal::User(user) => format!("chap:{}", USERS[*user]),
        Principal::Initiator => format!("claimed:{}", INITIATORS[0]),
        Principal::Station(station) => format!("claimed:{}", stations[*station]),
        Principal::Address => CLIENT_ADDRESS.to_owned(),
        Principal::OtherNetwork => "10.99.0.0/16".to_owned(),
    };
    let derived = tree.units().iter().enumerate().skip(1).map(|(at, unit)| {
        let mut text = format!("{}=dvd:{},shelf=7,slot={at}", name(at), name(unit.parent));
        let bytes = |blocks: usize| blocks * BLOCK_BYTES;
        text.extend(unit.regions.iter().map(|(from, count)| format!(",region={}+{}", bytes(*from), bytes(*count))));
        text.extend(unit.principals.iter().map(|principal| format!(",principal={}", named(principal))));
        text.push_str(match unit.most {
            Deed::Read => ",allow-ops=read",
            Deed::Write => ",allow-ops=read+write",
            // All that can be done with its parent.
            Deed::Discard => "",
        });
        if let Some(module) = unit.program.text() {
            let path = world.scratch.path(&format!("{}.wasm", name(at)));
            fs::write(&path, wat::parse_str(module).expect("a module")).expect("a file");
            text.push_str(&format!(",program={}", path.display()));
        }
        text
    });
    let disk = format!("disk=file:{store},size={},shelf=7,slot=0", DISK_BLOCKS * BLOCK_BYTES);
    let volumes: Vec<String> = derived.chain([disk]).collect();
    let aoe = INTERFACES.map(|interface| format!("aoe:{interface}"));
    let configuration = world.scratch.secret("targets.toml", &targets(tree.units().len()));
    // What another tree has left is not taken for its own.
    let (control, state) = (world.scratch.text("c.sock"), format!("{store}.state"));
    let options = ["--wire", &aoe[0], "--wire", &aoe[1], "--config", &configuration, "--control", &control];
    let options = [&options[..], &["--state-directory", &state]].concat();
    serve(world, &volumes.iter().map(String::as_str).collect::<Vec<_>>(), &options)
}

/// How often tests are to do what they do, in the long form.
fn times() -> Option<u64> {
    std::env::var("SANWIRE_TIMES").ok().and_then(|times| times.parse().ok())
}

/// How many trees are tried.
fn seeds() -> u64 {
    times().unwrap_or(1).max(3)
}

/// What is done with each of them.
fn deeds() -> usize {
    if times().is_some() { DEEDS_LONG } else { DEEDS }
}

#[test]
fn over_all_wires_nothing_passes_that_the_model_forbids_and_nothing_is_refused_that_it_allows() {
    let test = "over_all_wires_nothing_passes_that_the_model_forbids_and_nothing_is_refused_that_it_allows";
    let Some(world) = World::new(test, MTU, &[]) else { return };
    world.add_path(1, MTU);
    let keys = [(); 2].map(|()| ClientOptions::anonymous().expect("randomness"));
    let mut counts = Counts::new();
    for seed in 0..seeds() {
        println!("seed {seed}");
        let random = &mut Random::new(seed);
        let mut tree = Tree::new(random);
        let store = world.scratch.text(&format!("disk{seed}.img"));
        let mut server = serve_tree(&world, &tree, &store, &keys);
        let content = world.as_client(|| {
            let mut users = users(&world, &tree, &keys);
            let mut content = vec![0; DISK_BLOCKS * BLOCK_BYTES];
            for part in 0..PARTS {
                if part > 0 {
                    revoke(&world, &mut tree, &keys, &mut users, random);
                }
                work(&mut users, &tree, random, &mut content, &mut counts);
            }
            content
        });
        assert!(server.stop().success(), "{}", server.log());
        let found = fs::read(&store).expect("the store");
        let differs = found.iter().zip(&content).position(|(is, should)| is != should);
        assert_eq!(
            (found.len(), differs),
            (content.len(), None),
            "the bytes of the disk, and the first one that differs"
        );
    }
    assert_eq!(counts.len(), 8, "{counts:?}");
    assert!(counts.values().all(|[done, refused]| *done > 500 && *refused > 50), "{counts:?}");
}
