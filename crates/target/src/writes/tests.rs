use std::time::Instant;

use super::*;

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
        self.open("a", UUID, 0xff).tenure
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wait_for(keeper: &dyn TenureKeeper, wish: u64) {
    let end = Instant::now() + Duration::from_secs(20);
    while !keeper.is_kept(wish) {
        assert!(Instant::now() < end, "it is not kept");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_verifier_changes_when_the_host_was_lost_without_a_clean_stop_and_only_then() {
    let state = State::new("verifier");
    let first = state.start("a", 1);
    assert_eq!(first, [1; 16]);
    assert_eq!(state.start("a", 2), first, "a killed process loses nothing");
    let second = state.start("b", 3);
    assert_eq!(second, [3; 16], "the power has failed");
    stopped(Some(&state.0), UUID, Some(second));
    assert_eq!(state.start("c", 4), second, "all was stable");
    assert_eq!(state.start("d", 5), [5; 16], "that it was clean holds for one start");
    stopped(None, UUID, Some(second));
    let other = state.open("d", [8; 16], 6).verifier;
    assert_eq!(other, [6; 16], "each volume has its own");
}

/// Clients that do not hear of it in this run must hear of it in the next one.
#[test]
fn a_flush_that_has_failed_outlasts_the_run() {
    let state = State::new("flush");
    let keeper = state.open("a", UUID, 1).keeper.unwrap();
    let tenure = Tenure { id: [5; 16], writer: [6; 16] };
    wait_for(&*keeper, keeper.want(Some(tenure)));
    for number in 2..6 {
        keeper.renew([number; 16]);
    }
    let end = Instant::now() + Duration::from_secs(20);
    while state.start("a", 9) != [5; 16] {
        assert!(Instant::now() < end, "it is not kept");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(state.tenure(), Some(tenure));
    stopped(Some(&state.0), UUID, Some([6; 16]));
    assert_eq!(state.start("a", 9), [6; 16], "also when the server stops before that");
    stopped(Some(&state.0), UUID, None);
    assert_eq!(state.start("a", 9), [9; 16], "its last flush has failed");
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

/// A tenure that may be read again some day must be ended before anybody else writes.
#[test]
fn a_tenure_that_cannot_be_read_is_somebody_elses() {
    let state = State::new("unreadable");
    let directory = state.0.join("tenures");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(hexadecimal(UUID)), b"short").unwrap();
    let nobody = Some(Tenure { id: [0; 16], writer: [0; 16] });
    assert_eq!(state.tenure(), nobody);
    fs::remove_file(directory.join(hexadecimal(UUID))).unwrap();
    fs::create_dir(directory.join(hexadecimal(UUID))).unwrap();
    assert_eq!(state.tenure(), nobody);
    // It can neither be replaced nor removed.
    let keeper = state.open("a", UUID, 1).keeper.unwrap();
    let wish = keeper.want(None);
    thread::sleep(Duration::from_millis(50));
    assert!(!keeper.is_kept(wish));
    fs::remove_dir(directory.join(hexadecimal(UUID))).unwrap();
    wait_for(&*keeper, wish);
}

/// The run after it would else find the tenure of the run before, and know nothing of what others wrote in between.
#[test]
fn a_start_that_cannot_be_remembered_ends_the_tenure_from_before() {
    let state = State::new("forgotten");
    state.start("a", 1);
    let file = state.0.join("tenures").join(hexadecimal(UUID));
    keep(&file, Some(Tenure { id: [1; 16], writer: [2; 16] })).unwrap();
    assert!(state.tenure().is_some());
    let path = verifier_path(&state.0, UUID);
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(path.join("in the way")).unwrap();
    assert!(state.open("b", UUID, 3).tenure.is_none());
    assert!(!file.exists());
    keep(&file, None).unwrap();
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
    let path = ours.0.join("tenures").join(hexadecimal(UUID));
    for (other, fresh) in [(None, 10), (Some(&theirs), 20), (Some(&theirs), 30)] {
        let before = start(Some(&ours), fresh).verifier;
        keep(&path, Some(tenure)).unwrap();
        let again = start(Some(&ours), fresh + 1);
        assert_eq!((again.verifier, again.tenure), (before, Some(tenure)), "nobody was there");
        stopped(Some(&ours.0), UUID, Some(before));
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
    let path = state.0.join("tenures").join(hexadecimal(UUID));
    fs::create_dir_all(&path).unwrap();
    let records = || {
        let verifier = verifier_path(&state.0, UUID);
        Records { tenure: path.clone(), verifier, boot: "a".to_owned(), mark: None }
    };
    let [patient, hasty] = [PATIENCE, Duration::ZERO].map(|patience| FileTenures::new(records(), patience));
    assert!(!hasty.is_failing());
    let wishes = [&patient, &hasty].map(|keeper| keeper.want(None));
    let end = Instant::now() + Duration::from_secs(20);
    while !hasty.is_failing() || patient.shared.lock().failing_since.is_none() {
        assert!(Instant::now() < end, "it is tried in vain");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!hasty.is_kept(wishes[1]));
    fs::remove_dir(&path).unwrap();
    wait_for(&patient, wishes[0]);
    wait_for(&hasty, wishes[1]);
    assert!(!hasty.is_failing() && !patient.is_failing());
}
