use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Instant;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use sanwire_device::TenureKeeper;

use super::*;

mod failures;
mod waking;

const UUID: [u8; 16] = [7; 16];

/// A state directory that goes with the test.
struct State(PathBuf);

impl State {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sanwire-writes-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        State(path)
    }

    /// What a server that starts in this boot of the host is told of a volume whose file can carry nothing.
    fn open(&self, boot: &str, uuid: [u8; 16], fresh: u8) -> Volatility {
        volatility_in(boot, Path::new("nowhere"), Some(&self.0), uuid, [fresh; 16])
    }

    /// The verifier at a start in this boot of the host.
    fn start(&self, boot: &str, fresh: u8) -> [u8; 16] {
        self.open(boot, UUID, fresh).verifier
    }

    fn tenure(&self) -> Option<Tenure> {
        load_tenure(&self.tenure_path(), Path::new("a volume"))
    }

    fn tenure_path(&self) -> PathBuf {
        tenure_path(&self.0, UUID)
    }

    fn verifier_path(&self) -> PathBuf {
        verifier_path(&self.0, UUID)
    }

    fn kept_verifier(&self) -> Option<[u8; 16]> {
        load_verifier(&self.verifier_path()).and_then(|kept| parse(&kept.verifier))
    }

    /// What is in the way of this file: it can neither be read nor replaced nor removed.
    fn obstruct(&self, path: &Path) {
        fs::create_dir_all(path.join("in the way")).unwrap();
    }
}

/// As long as a keeper takes to try again what it could not write, and longer.
const ANOTHER_TRY: Duration = Duration::from_millis(1500);

impl Drop for State {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wait_for(keeper: &dyn TenureKeeper, wish: u64) {
    wait_until("it is kept", || keeper.is_kept(wish));
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A run ends in which no flush has failed before the last one.
fn stopped(state: Option<&Path>, uuid: [u8; 16], verifier: [u8; 16], is_flushed: bool) {
    super::stopped(state, uuid, Stop { verifier, is_flushed, has_failed: !is_flushed });
}

#[test]
fn the_verifier_changes_when_the_host_was_lost_without_a_clean_stop_and_only_then() {
    let state = State::new("verifier");
    let first = state.start("a", 1);
    assert_eq!(first, [1; 16]);
    assert_eq!(state.start("a", 2), first, "a killed process loses nothing");
    let second = state.start("b", 3);
    assert_eq!(second, [3; 16], "the power has failed");
    stopped(Some(&state.0), UUID, second, true);
    assert_eq!(state.start("c", 4), second, "all was stable");
    assert_eq!(state.start("d", 5), [5; 16], "that it was clean holds for one start");
    stopped(None, UUID, second, true);
    let other = state.open("d", [8; 16], 6).verifier;
    assert_eq!(other, [6; 16], "each volume has its own");
}

#[test]
fn what_only_the_process_knows_is_lost_when_it_is_killed() {
    let state = State::new("process");
    let start =
        |gone_with, fresh| volatility(Path::new("nowhere"), Some(&state.0), UUID, [fresh; 16], gone_with).verifier;
    let first = start(GoneWith::Host, 1);
    assert_eq!(start(GoneWith::Host, 2), first);
    let second = start(GoneWith::Process, 3);
    assert_eq!(second, [3; 16], "a volume that had layers when it was killed");
    assert_eq!(start(GoneWith::Process, 4), [4; 16]);
    stopped(Some(&state.0), UUID, [4; 16], true);
    assert_eq!(start(GoneWith::Process, 5), [4; 16], "all was stable");
    let forgetful = |fresh| volatility(Path::new("nowhere"), None, UUID, [fresh; 16], GoneWith::Process).verifier;
    assert_ne!(forgetful(6), forgetful(7));
}

#[test]
fn without_a_place_to_remember_it_the_verifier_changes_with_every_start_of_the_host() {
    let start = |boot| volatility_in(boot, Path::new("nowhere"), None, UUID, [9; 16]);
    assert_eq!(start("a").verifier, start("a").verifier);
    assert_ne!(start("a").verifier, start("b").verifier);
    assert!(start("a").keeper.is_none(), "nobody could be told that only he has written");
    let state = State::new("damaged");
    fs::write(state.0.join("writes"), b"a file").unwrap();
    assert_eq!(state.open("a", UUID, 9).verifier, start("a").verifier);
}

#[test]
fn the_last_tenure_that_was_wanted_is_kept() {
    let state = State::new("tenure");
    assert_eq!(state.tenure(), None);
    let keeper = state.open("a", UUID, 1).keeper.unwrap();
    let tenure = |number| Tenure { id: [number; 16], writer: [number + 1; 16] };
    for number in 1..20 {
        let _ = keeper.want(Some(tenure(number)));
    }
    let wish = keeper.want(Some(tenure(20)));
    wait_for(&*keeper, wish);
    assert_eq!(state.tenure(), Some(tenure(20)));
    wait_for(&*keeper, keeper.want(None));
    assert_eq!(state.tenure(), None);
    assert_ne!(keeper.draw(), keeper.draw());
}

const NOBODY: Option<Tenure> = Some(Tenure { id: [0; 16], writer: [0; 16] });

/// A tenure that may be read again some day must be ended before anybody else writes.
#[test]
fn a_tenure_that_cannot_be_read_is_somebody_elses() {
    let state = State::new("unreadable");
    state.start("a", 1);
    let path = state.tenure_path();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, b"short").unwrap();
    assert_eq!(state.open("a", UUID, 1).tenure, NOBODY);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let opened = state.open("a", UUID, 1);
    assert_eq!(opened.tenure, NOBODY);
    // It can neither be replaced nor removed.
    let keeper = opened.keeper.unwrap();
    let wish = keeper.want(None);
    thread::sleep(Duration::from_millis(50));
    assert!(!keeper.is_kept(wish));
    fs::remove_dir(&path).unwrap();
    wait_for(&*keeper, wish);
}

/// The run after it would else find the tenure of the run before, and know nothing of what others wrote in between.
#[test]
fn a_start_that_cannot_be_remembered_ends_the_tenure_from_before() {
    let state = State::new("forgotten");
    state.start("a", 1);
    let (file, path) = (state.tenure_path(), state.verifier_path());
    keep(&file, Some(Tenure { id: [1; 16], writer: [2; 16] })).unwrap();
    assert!(state.open("a", UUID, 1).tenure.is_some());
    fs::remove_file(&path).unwrap();
    state.obstruct(&path);
    assert!(state.open("b", UUID, 3).tenure.is_none());
    assert!(!file.exists());
    keep(&file, None).unwrap();
}

/// The record goes on saying that all is stable: the start after the next loss of power would believe it of this run too.
#[test]
fn a_start_after_a_clean_stop_that_cannot_be_remembered_has_another_verifier() {
    for holds in [false, true] {
        let state = State::new(&format!("misleading-{holds}"));
        let first = state.start("a", 1);
        stopped(Some(&state.0), UUID, first, true);
        if holds {
            // It can be neither read nor ended.
            state.obstruct(&state.tenure_path());
        }
        let beside = state.verifier_path().with_extension("json.new");
        state.obstruct(&beside);
        let told = state.open("a", UUID, 2);
        assert_eq!((told.verifier, told.keeper.is_some()), ([2; 16], holds));
        drop(told);
        fs::remove_dir_all(&beside).unwrap();
        let after = state.start("b", 3);
        assert!(after != [2; 16], "the power has failed meanwhile: {after:?}");
    }
}

/// A volume may be served with other records, or none, and be written to by others meanwhile.
#[test]
fn records_from_before_another_run_are_not_believed() {
    let (ours, theirs, volume) = (State::new("ours"), State::new("theirs"), State::new("volume"));
    let file = volume.0.join("disk.img");
    fs::write(&file, b"").unwrap();
    assert!(mark_records(&file, Some("probe")), "the directory for temporary files has extended attributes");
    let start =
        |state: Option<&State>, fresh: u8| volatility_in("a", &file, state.map(|state| &*state.0), UUID, [fresh; 16]);
    let tenure = Tenure { id: [1; 16], writer: [2; 16] };
    let path = ours.tenure_path();
    for (other, fresh) in [(None, 10), (Some(&theirs), 20), (Some(&theirs), 30)] {
        let before = start(Some(&ours), fresh).verifier;
        keep(&path, Some(tenure)).unwrap();
        let again = start(Some(&ours), fresh + 1);
        assert_eq!((again.verifier, again.tenure), (before, Some(tenure)), "nobody was there");
        stopped(Some(&ours.0), UUID, before, true);
        assert_ne!(start(other, fresh + 2).verifier, before);
        let late = start(Some(&ours), fresh + 3);
        assert_eq!((late.verifier, late.tenure), ([fresh + 3; 16], None), "however it was stopped");
        assert!(!path.exists());
    }
    // What cannot be ended stays untrue.
    keep(&path, Some(tenure)).unwrap();
    start(None, 40);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    for fresh in [41, 42] {
        let late = start(Some(&ours), fresh);
        assert_eq!((late.verifier, late.tenure, late.keeper.is_none()), ([fresh; 16], None, true));
    }
}

#[test]
fn what_cannot_be_made_durable_is_said_to_fail_until_it_can() {
    let state = State::new("failing");
    let path = state.tenure_path();
    fs::create_dir_all(&path).unwrap();
    let records = || {
        let verifier = state.verifier_path();
        Records { tenure: path.clone(), verifier, boot: "a".to_owned(), mark: None }
    };
    let [patient, hasty] = [TIMEOUT, Duration::ZERO].map(|patience| FileTenures::new(records(), patience));
    assert!(!hasty.is_failing());
    let wishes = [&patient, &hasty].map(|keeper| keeper.want(None));
    wait_until("it is tried in vain", || hasty.is_failing() && patient.shared.lock().failing_since.is_some());
    assert!(!hasty.is_kept(wishes[1]));
    fs::remove_dir(&path).unwrap();
    wait_for(&patient, wishes[0]);
    wait_for(&hasty, wishes[1]);
    assert!(!hasty.is_failing() && !patient.is_failing());
}

/// The volume may be added again when its state directory is back, and have another tenure then.
#[test]
fn what_a_volume_that_is_gone_could_not_keep_is_never_kept() {
    let state = State::new("gone");
    let tenure = |number| Tenure { id: [number; 16], writer: [number; 16] };
    let keeper = state.open("a", UUID, 1).keeper.unwrap();
    state.obstruct(&state.tenure_path());
    let wish = keeper.want(Some(tenure(1)));
    thread::sleep(Duration::from_millis(50));
    assert!(!keeper.is_kept(wish));
    drop(keeper);
    fs::remove_dir_all(state.tenure_path()).unwrap();
    let again = state.open("a", UUID, 2).keeper.unwrap();
    wait_for(&*again, again.want(Some(tenure(2))));
    thread::sleep(ANOTHER_TRY);
    assert_eq!(state.tenure(), Some(tenure(2)));
}

/// One that is still in use somewhere writes nothing either, and says so.
#[test]
fn records_have_one_keeper() {
    let state = State::new("two");
    let [before, now] = [1, 2].map(|fresh| state.open("a", UUID, fresh).keeper.unwrap());
    let wish = before.want(Some(Tenure { id: [1; 16], writer: [1; 16] }));
    assert!(before.is_failing() && !now.is_failing());
    wait_for(&*now, now.want(Some(Tenure { id: [2; 16], writer: [2; 16] })));
    assert!(!before.is_kept(wish));
    assert_eq!(state.tenure().map(|tenure| tenure.id), Some([2; 16]));
}

#[test]
fn a_failed_flush_that_could_not_be_kept_is_told_when_the_volume_is_there_again() {
    let state = State::new("untold");
    let opened = state.open("a", UUID, 1);
    let beside = state.verifier_path().with_extension("json.new");
    state.obstruct(&beside);
    opened.keeper.unwrap().renew([2; 16]);
    let told = state.open("a", UUID, 3);
    assert!(told.verifier != opened.verifier && told.has_failed);
    fs::remove_dir_all(&beside).unwrap();
    assert_ne!(state.start("a", 4), opened.verifier, "who comes later hears of it too");
    let keeper = state.open("a", UUID, 5).keeper.unwrap();
    state.obstruct(&beside);
    keeper.renew([6; 16]);
    drop(keeper);
    fs::remove_dir_all(&beside).unwrap();
    wait_until("it is kept also when the volume is gone", || state.kept_verifier() == Some([6; 16]));
}

/// There is no room for another record, perhaps for the same reason, and nobody lets the server end well.
#[test]
fn a_failed_flush_that_could_not_be_kept_is_told_when_the_server_was_killed_too() {
    let state = State::new("no-room");
    let keeper = state.open("a", UUID, 1).keeper.unwrap();
    let beside = state.verifier_path().with_extension("json.new");
    state.obstruct(&beside);
    keeper.renew([2; 16]);
    wait_until("nothing is believed", || !state.verifier_path().exists());
    fs::remove_dir_all(&beside).unwrap();
    wait_until("it is kept when there is room", || state.kept_verifier() == Some([2; 16]));
}

#[test]
fn nothing_is_written_after_the_last_word_of_a_volume_that_has_stopped() {
    let state = State::new("stopped");
    let keeper = state.open("a", UUID, 1).keeper.unwrap();
    let beside = state.verifier_path().with_extension("json.new");
    state.obstruct(&beside);
    keeper.renew([2; 16]);
    stopped(Some(&state.0), UUID, [3; 16], false);
    fs::remove_dir_all(&beside).unwrap();
    thread::sleep(ANOTHER_TRY);
    assert_eq!(state.kept_verifier(), None);
    assert_eq!(state.start("a", 4), [4; 16]);
}

/// Others may have served the volume since, and nothing says so.
#[test]
fn a_tenure_without_its_record_is_not_believed() {
    let state = State::new("alone");
    keep(&state.tenure_path(), Some(Tenure { id: [1; 16], writer: [2; 16] })).unwrap();
    assert_eq!(state.open("a", UUID, 1).tenure, None);
    assert!(!state.tenure_path().exists());
}

/// They are from a time when the file could carry nothing; others have served it since.
#[test]
fn records_without_a_mark_are_not_believed_of_a_file_that_has_one() {
    let (ours, volume) = (State::new("unmarked"), State::new("marked"));
    let file = volume.0.join("disk.img");
    assert_eq!(ours.start("a", 1), [1; 16]);
    keep(&ours.tenure_path(), Some(Tenure { id: [1; 16], writer: [2; 16] })).unwrap();
    fs::write(&file, b"").unwrap();
    let start = |fresh| volatility_in("a", &file, Some(&ours.0), UUID, [fresh; 16]);
    let unmarked = start(2);
    assert_eq!((unmarked.verifier, unmarked.tenure.is_some()), ([1; 16], true), "the file could carry none");
    assert_eq!(start(3).verifier, [1; 16]);
    let other = State::new("other");
    volatility_in("a", &file, Some(&other.0), UUID, [4; 16]);
    ours.start("a", 5);
    let kept = load_verifier(&ours.verifier_path()).unwrap();
    save(&ours.verifier_path(), &Kept { mark: None, ..kept }).unwrap();
    keep(&ours.tenure_path(), Some(Tenure { id: [1; 16], writer: [2; 16] })).unwrap();
    let late = start(6);
    assert_eq!((late.verifier, late.tenure), ([6; 16], None));
}

/// Has this thread be bound by the permissions of files, also when it is root's.
fn give_up_privileges() {
    let mut own = capabilities(None).unwrap();
    own.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    set_capabilities(None, CapabilitySets { ..own }).unwrap();
}

/// A removal that the directory does not hold yet is undone by a loss of power.
#[test]
fn the_end_of_a_tenure_is_kept_only_when_its_removal_is_durable() {
    let state = State::new("removal");
    let (path, tenure) = (state.tenure_path(), Tenure { id: [1; 16], writer: [2; 16] });
    state.start("a", 1);
    keep(&path, Some(tenure)).unwrap();
    give_up_privileges();
    let permit = |mode| fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(mode)).unwrap();
    // What is in it may be removed, and it cannot be opened to make that durable.
    permit(0o300);
    let keeper = FileTenures::new(
        Records { tenure: path.clone(), verifier: state.verifier_path(), boot: "a".to_owned(), mark: None },
        Duration::ZERO,
    );
    let wish = keeper.want(None);
    wait_until("it is removed, and nobody knows for how long", || !path.exists() && keeper.is_failing());
    assert!(!keeper.is_kept(wish));
    drop(keeper);
    assert_eq!(state.open("a", UUID, 1).tenure, NOBODY, "it may be back after the next start");
    permit(0o700);
    assert_eq!(state.open("a", UUID, 1).tenure, None);
}
