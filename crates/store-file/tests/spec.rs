//! How volumes are written, with the kinds of stores that this crate adds.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use sanwire_core::{DeviceType, Protection};
use sanwire_store::kind::{Place, PoolFile};
use sanwire_store::layer::Which;
use sanwire_store::{
    CompletionQueue, ErrorKind, OpenError, Patience, Request, SpecError, Started, StoreSpec, VolumeSpec,
};
use sanwire_store_file::blocking;

fn volume(text: &str) -> VolumeSpec {
    sanwire_store_file::register();
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    sanwire_store_file::register();
    text.parse::<VolumeSpec>().expect_err(text).to_string()
}

#[test]
fn both_forms_say_the_same() {
    let text = volume(
        "disk0=file:/srv/a.img,size=10G,grow,block=4096,readonly,direct,delay=read:5ms,delay=1s,error=read:0.01,seed=7",
    );
    let table: VolumeSpec = toml::from_str(
        r#"
        name = "disk0"
        store = "file:/srv/a.img"
        size = 10737418240
        grow = true
        block = 4096
        readonly = true
        direct = true
        delay = ["read:5ms", "1s"]
        error = "read:0.01"
        seed = 7
        "#,
    )
    .unwrap();
    assert_eq!(text, table);
    assert_eq!(&*text.name, "disk0");
    assert_eq!(text.store.delays[0].which, Which::Read);
    assert_eq!(text.store.delays[1].delay, Duration::from_secs(1));
    assert_eq!(text.store.backing.place(), Place::File(Path::new("/srv/a.img")));
    let said = format!("{:?}", text.store.backing);
    for option in
        ["size_bytes: Some(10737418240)", "grow: true", "read_only: true", "direct: true", "block_bytes: Some(4096)"]
    {
        assert!(said.contains(option), "{option}: {said}");
    }
}

#[test]
fn a_volume_says_whether_its_data_may_be_compressed() {
    for (text, expected) in
        [("a=ram:1M", true), ("a=ram:1M,compression=allowed", true), ("a=ram:1M,compression=off", false)]
    {
        assert_eq!(volume(text).compressible, expected, "{text}");
    }
}

#[test]
fn a_volume_says_how_long_its_commands_wait_for_its_store() {
    let none = Patience::default();
    for (text, expected) in [
        ("a=ram:1M", none),
        ("a=ram:1M,when-full=error,when-gone=error", none),
        ("a=ram:1M,when-full=wait:60s", Patience { full: Some(Duration::from_secs(60)), ..none }),
        ("a=ram:1M,when-gone=wait:250ms", Patience { gone: Some(Duration::from_millis(250)), ..none }),
    ] {
        assert_eq!(volume(text).patience, expected, "{text}");
    }
    let table = "name = 'a'\nstore = 'ram:1M'\nwhen-full = 'wait:60s'\n";
    assert_eq!(toml::from_str::<VolumeSpec>(table).unwrap(), volume("a=ram:1M,when-full=wait:60s"));
    for text in ["a=ram:1M,when-full=wait:0s", "a=ram:1M,when-gone=wait:3601s", "a=ram:1M,when-gone=60s"] {
        assert!(text.parse::<VolumeSpec>().is_err(), "{text}");
    }
    assert!("ram:1M,when-full=wait:60s".parse::<StoreSpec>().is_err(), "nobody is served");
}

#[test]
fn every_kind_of_store_is_read() {
    for (text, place, size_bytes) in [
        ("a=ram:1.5G", Place::Memory, Some(3 << 29)),
        ("a=null:1T,readonly=false", Place::Memory, Some(1 << 40)),
        ("a=file:/dev/sdb", Place::File(Path::new("/dev/sdb")), None),
        ("a=/dev/sdb", Place::File(Path::new("/dev/sdb")), None),
    ] {
        let spec = volume(text);
        assert_eq!((spec.store.backing.place(), spec.size_bytes()), (place, size_bytes), "{text}");
    }
    assert_ne!(volume("a=ram:1M").store, volume("a=null:1M").store);
    assert_ne!(volume("a=file:/dev/sdb").store, volume("a=/dev/sdb").store, "only a block device");
}

#[test]
fn commas_of_paths_are_escaped_and_other_backslashes_are_not() {
    let path = |text: &str| match volume(text).store.backing.place() {
        Place::File(path) => path.to_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(path(r"a=file:x\,y=z\\,readonly"), r"x,y=z\");
    assert_eq!(path(r"a=/dev/disk/by-label/My\x20Disk"), r"/dev/disk/by-label/My\x20Disk");
}

#[test]
fn refusals_name_the_culprit_and_what_is_allowed() {
    for (text, message) in [
        ("ram:1G", "'ram:1G' has no name: a volume is NAME=STORE[,KEY[=VALUE]]..., like disk0=ram:1G"),
        ("a b=ram:1G", "'a b' is no volume name: 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'"),
        ("=ram:1G", "'' is no volume name: 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'"),
        (
            "a=tape:1G",
            "'tape:1G' is no store: use ram:SIZE, null:SIZE, none: (a drive without a disc), file:PATH, pool:[POOL] or the absolute path of a block device",
        ),
        (
            "a=ram:1G,speed=3",
            "there is no key 'speed': use size, grow, direct, type, block, readonly, removable, security, \
             compression, shelf, slot, disk-address, when-full, when-gone, protected, owner, layers, thick, delay, error, seed",
        ),
        (
            "a=ram:1G,when-full=wait",
            "invalid when-full 'wait': use error, or wait: and a time of up to an hour, like wait:60s",
        ),
        (
            "a=ram:1G,layers=p",
            "layers is not for this store: what is in memory is gone at the next start, and the layers over it would not be",
        ),
        (
            "a=pool:q,layers=p",
            "layers is not for this store: a volume in a pool has its layers there (snapshots = \"layers\" in the pool)",
        ),
        ("a=file:x,type=optical,layers=p", "layers is not for this store: nothing is written to a disc"),
        (
            "a=file:x,layers=p/q",
            "invalid layers 'p/q': use the name of a pool: 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'",
        ),
        ("a=ram:1G,block=1024", "invalid block '1024': use 512 or 4096"),
        ("a=ram:1G,type=tape", "invalid type 'tape': use disk or optical"),
        ("a=none:", "type=disk is not for this store: only a drive, type=optical, can be empty"),
        ("a=ram:1G,type=optical,block=512", "block is not for this store: a disc has blocks of 2048 bytes"),
        ("a=ram:1G,compression=lz4", "invalid compression 'lz4': use off or allowed"),
        ("a=ram:1G,block=512,block=512", "block is given twice"),
        ("a=file:x,size=0", "invalid size '0': use a positive size, like 10G"),
        ("a=ram:1G,readonly=yes", "invalid readonly 'yes': use true, false or the key alone"),
        ("a=ram:1G,size=1G", "size is not for this store: the size stands right behind ram: or null:"),
        ("a=/dev/sdb,size=1G", "size is not for this store: a block device has the size it has (a file is file:PATH)"),
        ("a=file:x,grow", "grow is not for this store: it needs size=, the length to grow to"),
        (
            "a=ram:1G,delay=5",
            "invalid delay '5': use [all:|read:|write:|flush:|discard:]NUMBER and us, ms or s, up to an hour, \
             like 5ms or read:250us",
        ),
    ] {
        assert_eq!(refusal(text), message, "{text}");
    }
    for text in
        ["a=", "a=ram:", "a=ram:0", "a=ram:1X", "a=file:", "a=null", "a=relative", "a=ram:1G,", "a=ram:512,block=4096"]
    {
        refusal(text);
    }
    refusal(&format!("{}=ram:1G", "x".repeat(65)));
}

#[test]
fn tables_are_as_strict_as_text() {
    let refusal = |text: &str| toml::from_str::<VolumeSpec>(text).expect_err(text).to_string();
    assert!(refusal("name = 'a'\nstore = 'ram:1G'\nspeed = 3").contains("unknown field `speed`"));
    assert!(refusal("name = 'a'\nstore = 'ram:1G'\nblock = 1024").contains("invalid block '1024': use 512 or 4096"));
    assert!(refusal("name = 'a'").contains("missing field `store`"));
    assert!(refusal("name = 'a'\nstore = 'ram:1G'\nblock = -1").contains("a text, a number"));
}

#[test]
fn layers_lie_in_their_order() {
    let store = volume("a=ram:1M,readonly,delay=read:1ms,error=read").store.open().unwrap();
    assert!(store.geometry().read_only);
    let write = Request::Write { offset_bytes: 0, data: vec![0; 512].into() };
    assert!(matches!(blocking::run(&*store, write), Err(error) if error.kind == ErrorKind::ReadOnly));
    let queue = CompletionQueue::new(|| ());
    let read = Request::Read { offset_bytes: 0, buffer: vec![0; 512].into() };
    let Started::Later(delayed) = store.start(read, &queue) else {
        panic!("the delay is above the error");
    };
    assert!(matches!(delayed.resume(&queue), Started::Done(Err(error)) if error.kind == ErrorKind::Unreadable));
}

#[test]
fn a_volume_may_be_removable_or_thick() {
    let spec = volume("disk0=ram:1M,removable,thick");
    assert!(spec.removable && spec.store.thick && !spec.store.open().unwrap().geometry().discards);
    let spec = volume("disk0=ram:1M");
    assert!(!spec.removable && !spec.store.thick && spec.store.open().unwrap().geometry().discards);
    let refused = "ram:1M,removable".parse::<StoreSpec>().unwrap_err();
    assert!(matches!(refused, SpecError::NotHere { key: "removable", .. }), "{refused}");
}

#[test]
fn a_drive_is_given_discs_that_nobody_writes() {
    let empty = volume("cd0=none:,type=optical");
    assert_eq!((empty.store.backing.place(), empty.to_string()), (Place::Nowhere, "cd0=none:,type=optical".to_owned()));
    assert!(matches!(empty.store.open(), Err(OpenError::NoMedium)));
    let drive = volume("cd0=file:a.iso,type=optical");
    assert_ne!(empty, drive);
    assert_eq!(empty.with_disc("file:a.iso").unwrap(), drive);
    assert_eq!((drive.device_type, drive.store.read_only), (DeviceType::Optical, true));
    assert_eq!(drive, volume("cd0=file:a.iso,type=optical,readonly"));
    assert_ne!(drive, volume("cd0=file:a.iso,readonly"));
    let other = drive.clone().with_disc("file:b.iso").unwrap();
    assert_eq!(other.to_string(), "cd0=file:b.iso,type=optical");
    assert_eq!(other, volume("cd0=file:b.iso,type=optical"));
    assert!(drive.with_disc("floppy:b").is_err());
    assert_eq!(volume("a=ram:1M").device_type, DeviceType::Disk);
}

#[test]
fn more_memory_than_the_machine_has_is_refused() {
    let error = volume("a=ram:1P").store.open().expect_err("no machine has that").to_string();
    assert!(error.starts_with("1 PiB of memory (1125899906842624 bytes) cannot be had: this machine has "), "{error}");
    let store = volume("a=ram:1M").store.open().unwrap();
    assert!(store.resize(1 << 50).unwrap_err().to_string().contains("this machine has less memory"));
    assert_eq!(store.geometry().length_bytes, 1 << 20);
}

#[test]
fn a_volume_is_written_as_the_text_that_makes_it_again() {
    for text in [
        "a=ram:1M",
        "a=null:512M,block=4096,security=aes-128-gcm,compression=off",
        r"disk0=file:/srv/a\,b\\\,c.img,size=10G,grow,readonly,removable,when-full=wait:60s,delay=read:5ms,delay=1s,error=read:0.01,seed=7",
        "sdb=/dev/sdb,thick,direct,when-gone=error",
    ] {
        let spec = volume(text);
        assert_eq!(volume(&spec.to_string()), spec, "{text}");
    }
    let table: VolumeSpec =
        toml::from_str("name = \"a\"\nstore = \"file:/x,y\"\nsize = 1048576\nremovable = true").unwrap();
    assert_eq!(table.to_string(), r"a=file:/x\,y,size=1048576,removable=true");
}

#[test]
fn a_volume_with_another_size_or_protection_is_written_so() {
    let changed = |text: &str| volume(text).with_size(3 << 20).with_security(Some(Protection::Hash));
    for (text, expected) in [
        ("a=ram:1M", "a=ram:3M,security=hash"),
        ("a=null:1M,security=none,readonly", "a=null:3M,security=hash,readonly"),
        ("a=file:/x,size=1M", "a=file:/x,size=3M,grow,security=hash"),
        ("a=file:/x", "a=file:/x,security=hash"),
        ("a=/dev/sda", "a=/dev/sda,security=hash"),
    ] {
        let (changed, expected) = (changed(text), volume(expected));
        assert_eq!(changed, expected, "{text}");
        assert_eq!(volume(&changed.to_string()), expected, "{text}");
        assert_eq!(changed.size_bytes(), expected.size_bytes(), "{text}");
    }
    assert_eq!(volume("a=ram:1M,security=hash").with_security(None), volume("a=ram:1M"));
}

#[test]
fn a_relative_path_is_made_absolute() {
    let here = std::env::current_dir().unwrap();
    let expected = volume(&format!("a=file:{}/x.img,size=1M", here.display()));
    let absolute = volume("a=file:x.img,size=1M").with_absolute_path();
    assert_eq!((&absolute, volume(&absolute.to_string())), (&expected, expected.clone()));
    for text in ["a=ram:1M", "a=file:/x", "a=/dev/sda"] {
        assert_eq!(volume(text).with_absolute_path(), volume(text), "{text}");
    }
}

#[test]
fn volumes_that_differ_in_their_size_alone_say_so() {
    for (one, other, size_bytes) in [
        ("a=ram:1M", "a=ram:2M", Some(2 << 20)),
        ("a=ram:1M", "a=ram:1M", None),
        ("a=ram:1M", "a=null:2M", None),
        ("a=ram:1M", "a=ram:2M,block=4096", None),
        ("a=ram:1M", "a=ram:2M,thick", None),
        ("a=file:/x", "a=file:/x,size=2M,grow", Some(2 << 20)),
        ("a=file:/x,size=1M", "a=file:/y,size=2M", None),
        ("a=file:/x,size=1M", "a=file:/x,size=2M,direct", None),
        ("a=file:/x,size=1M,layers=p", "a=file:/x,size=2M,layers=p", Some(2 << 20)),
        ("a=file:/x,size=1M,layers=p", "a=file:/x,size=2M,layers=q", None),
        ("a=file:/x,size=1M", "a=file:/x,size=2M,layers=p", None),
    ] {
        assert_eq!(volume(one).differs_in_size(&volume(other)), size_bytes, "{one} {other}");
    }
}

#[test]
fn a_store_with_layers_is_in_the_pool_that_keeps_them() {
    let text = "a=file:/srv/a\\,b.img,size=1M,direct,block=4096,security=hash,layers=fast,error=read:0.5";
    let over = volume(text);
    assert_eq!(over.pool().and_then(|place| place.pool.as_deref()), Some("fast"));
    assert_eq!(
        (over.store.backing.place(), over.size_bytes()),
        (Place::File(Path::new("/srv/a,b.img")), Some(1 << 20))
    );
    let below = over.below_layers().unwrap();
    let read: StoreSpec = below.written.parse().unwrap();
    assert_eq!(*read.backing, *volume("a=file:/srv/a\\,b.img,size=1M,direct,block=4096").store.backing);
    assert!(read.errors.is_empty(), "the rest is over the layers");
    let again = |text| volume(text).below_layers().unwrap().again.clone();
    assert_eq!(again(text), "file:/srv/a\\,b.img,direct=true,block=4096", "it is neither made nor made longer");
    let here = std::env::current_dir().unwrap();
    assert_eq!(again("a=file:a.img,layers=fast"), format!("file:{}/a.img", here.display()));
    assert_eq!(volume(&over.to_string()), over);
    assert!(matches!(over.store.open(), Err(OpenError::NoPool { pool: Some(pool) }) if pool == "fast"));
    // Its pool says where it is, and not what is written.
    let file = PoolFile { path: "/pool/a.img".into(), content: None };
    let placed = over.clone().in_pool("fast", file).with_size(2 << 20);
    assert_eq!(placed.store.backing.place(), Place::File(Path::new("/pool/a.img")));
    assert_eq!((placed.store_text(), placed.size_bytes()), ("file:/srv/a,b.img", Some(2 << 20)));
    let clone = over.cloned_in_pool("b", "fast", 4096).unwrap();
    assert_eq!(clone, volume("b=pool:fast,size=4096,security=hash,error=read:0.5"));
}
