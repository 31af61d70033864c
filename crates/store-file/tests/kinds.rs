//! Kinds of stores that other crates add. What is added stays for the whole process: a test of its own.
#![forbid(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

use sanwire_store::kind::{Backing, Likeness, Place, StoreKind, register};
use sanwire_store::{Expectation, Known, NullStore, OpenError, SpecError, Store, StoreSpec, VolumeSpec, Written};

/// A kind that some other crate has.
struct EchoKind;

#[derive(PartialEq, Debug)]
struct Echo {
    address: String,
    depth: u32,
}

impl StoreKind for EchoKind {
    fn words(&self) -> &'static [&'static str] {
        &["echo", "echo+ip"]
    }

    fn form(&self) -> &'static str {
        "echo:ADDRESS"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["depth"]
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let depth = written.value("depth", "a number", |text| text.parse().ok())?.unwrap_or(1);
        Ok(Arc::new(Echo { address: written.store().into(), depth }))
    }
}

impl Backing for Echo {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        Ok((Arc::new(NullStore::new(1 << 20, 512)), None))
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.address)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let is_same = (other as &dyn Any).downcast_ref() == Some(self);
        if is_same { Likeness::Same } else { Likeness::Other }
    }
}

#[test]
fn a_kind_that_was_added_is_read_opened_and_told_of_with_its_keys() {
    sanwire_store_file::register();
    register(&EchoKind);
    register(&EchoKind);
    let spec: VolumeSpec = "a=echo+ip://host/x,depth=3,readonly".parse().unwrap();
    assert_eq!(spec.store.backing.place(), Place::Elsewhere("echo+ip://host/x"));
    assert_eq!(format!("{:?}", spec.store.backing), r#"Echo { address: "echo+ip://host/x", depth: 3 }"#);
    assert_eq!(spec.to_string().parse::<VolumeSpec>().unwrap(), spec);
    assert_ne!("a=echo+ip://host/x,readonly".parse::<VolumeSpec>().unwrap(), spec);
    let table = "name = \"a\"\nstore = \"echo+ip://host/x\"\ndepth = 3\nreadonly = true";
    assert_eq!(toml::from_str::<VolumeSpec>(table).unwrap(), spec);
    assert!(spec.store.open().unwrap().geometry().read_only, "the layers lie over it");
    let refused = |text: &str| text.parse::<StoreSpec>().unwrap_err().to_string();
    assert_eq!(
        refused("tape:1"),
        "'tape:1' is no store: use ram:SIZE, null:SIZE, none: (a drive without a disc), file:PATH, pool:[POOL], echo:ADDRESS or the absolute path of a block device"
    );
    assert!(refused("echo:x,depth=deep").starts_with("invalid depth 'deep'"));
    assert_eq!(refused("ram:1M,depth=3"), "depth is not for this store: stores of its kind have no such key");
    assert_eq!(refused("echo:x,size=1M"), "size is not for this store: stores of its kind have no such key");
    let unknown = refused("echo:x,speed=1");
    assert!(unknown.contains("grow, direct, depth, type, block"), "{unknown}");
}
