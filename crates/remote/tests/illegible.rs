//! Members whose labels this version does not understand are named, and taken for nothing else.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use sanwire_array::{Arrangement, Plan, create};
use sanwire_remote::array::{Members, Purpose, drive, fresh};

const MEMBER_BYTES: u64 = 4 << 20;

#[test]
fn a_member_whose_label_is_not_understood_is_named_with_what_to_do() {
    sanwire_store_file::register();
    let directory = std::env::temp_dir().join(format!("sanwire-illegible-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let place = |name: &str| format!("file:{}", directory.join(name).display());
    let sized = ["one.img", "two.img"].map(|name| format!("{},size={MEMBER_BYTES}", place(name)));
    let members = Members::open_only(&sized, Purpose::Use.into());
    let plan = Plan { name: "a".to_owned(), arrangement: Arrangement::Concat, copies: 2, force: false };
    create(&plan, &members.candidates, || fresh().unwrap(), &mut drive).unwrap();
    let mut label = members.candidates[1].label(&mut drive).unwrap().unwrap();
    drop(members);
    label.table.copies = 3;
    let file = OpenOptions::new().write(true).open(directory.join("two.img")).unwrap();
    for at in [0, 16 << 10, MEMBER_BYTES - (16 << 10)] {
        file.write_all_at(&label.encode(), at).unwrap();
    }
    let before = fs::read(directory.join("two.img")).unwrap();
    for purpose in [Purpose::Look, Purpose::Read, Purpose::Use] {
        // Also where only the label of the other one names it.
        for texts in [&[place("one.img")][..], &[place("one.img"), place("two.img")]] {
            let members = Members::open("a", texts, purpose.into());
            let [(text, why)] = &members.failures[..] else { panic!("{:?}", members.failures) };
            assert!(*text == place("two.img") && why.contains("does not understand"), "{text}: {why}");
            let refused = members.assemble("a", false).unwrap_err().to_string();
            assert!(refused.contains("only 1 of 2") && refused.contains("its first 128 KiB"), "{refused}");
        }
    }
    assert!(fs::read(directory.join("two.img")).unwrap() == before, "it was written");
    fs::remove_dir_all(directory).unwrap();
}
