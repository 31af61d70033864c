//! Volumes that get layers over the store that they had without.

use super::*;
use crate::pools::PoolConfig;

/// A start of the server with a pool: the identity of the volume, or why it cannot be served.
fn start_with_layers(host: &Host, acceptance: Acceptance) -> Result<[u8; 16], String> {
    let directory = host.0.join("pool");
    fs::create_dir_all(&directory).unwrap();
    let config: PoolConfig = format!("p={}", directory.display()).parse().unwrap();
    let pools = Pools::open(std::slice::from_ref(&config), None).unwrap();
    let state = host.state();
    let (clock, programs) = Default::default();
    let opening = Opening {
        state: Some(&state),
        pools: &pools,
        clock: &clock,
        programs: &programs,
        seen: SystemTime::UNIX_EPOCH,
        acceptance,
        until: None,
    };
    let VolumeConfig { lun, spec, origin } = host.volume(",size=1M,layers=p");
    let volume = VolumeConfig { lun, spec: pools.place(spec).unwrap(), origin };
    let units = LogicalUnits::new();
    let told = |error: StartError| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {source}")
    };
    add_volume(&units, &volume, &opening, 0).map_err(told)?;
    Ok(units.get(Lun::default()).unwrap().identity().uuid())
}

#[test]
fn layers_do_not_make_a_file_that_was_there_before() {
    let host = Host::new("layers-vanished");
    let first = host.start(Acceptance::Known).unwrap();
    fs::rename(host.file(), host.0.join("elsewhere")).unwrap();
    let refused = start_with_layers(&host, Acceptance::Known).unwrap_err();
    assert!(refused.contains("does not exist, though it held the volume a before"), "{refused}");
    assert!(!host.file().exists() && !host.0.join("pool/a.img").exists(), "nothing was made");
    fs::rename(host.0.join("elsewhere"), host.file()).unwrap();
    assert_eq!(start_with_layers(&host, Acceptance::Known), Ok(first), "it is back");
}

#[test]
fn layers_begin_only_over_the_file_that_the_volume_was() {
    let host = Host::new("layers-replaced");
    let first = host.start(Acceptance::Known).unwrap();
    if !host.has_marks() {
        return;
    }
    host.replace_file(1 << 20);
    let refused = start_with_layers(&host, Acceptance::Known).unwrap_err();
    assert!(refused.contains("is not what held the volume a before"), "{refused}");
    assert!(!host.0.join("pool/a.img").exists(), "nothing was made");
    let place = Record::new("a", &host.file(), Some(&host.state())).place();
    let kept = fs::read(&place).unwrap();
    fs::write(&place, "{").unwrap();
    assert!(start_with_layers(&host, Acceptance::Known).is_err(), "nobody knows which file it was");
    fs::write(&place, kept).unwrap();
    assert_eq!(start_with_layers(&host, Acceptance::Adopted), Ok(first), "its owner says that it is the same");
    assert_eq!(start_with_layers(&host, Acceptance::Known), Ok(first));
}
