//! By what the members of an array are reached.

use std::error::Error;
use std::sync::Mutex;

use sanwire_initiator::{ClientOptions, Server, Url};
use sanwire_remote::array::{ArrayKind, Discovered, FoundVolume, Members, Opening, Purpose};
use sanwire_remote::volume::{Access, VolumeKind};
use sanwire_store::{StoreSpec, kind};

/// Who was to be reached, and by what, each time.
static ASKED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Nothing is reached; it is told how it would be.
fn options(server: &Server, access: &Access) -> Result<ClientOptions, Box<dyn Error + Send + Sync>> {
    ASKED.lock().unwrap().push((server.to_string(), format!("{:?}", access.iser_path)));
    Err(format!("{server} goes by {:?}", access.iser_path).into())
}

/// The same of who is asked, who tells of a volume.
fn discover(places: &[Url], access: &Access) -> Discovered {
    let url: Url = "iser://127.0.0.3/iqn.2026-11.org.x:found/0".parse().unwrap();
    let problems = places.iter().map(|place| format!("{place} is asked by {:?}", access.iser_path)).collect();
    Discovered { volumes: vec![FoundVolume { url, naa: None }], problems }
}

fn register() {
    kind::register(&VolumeKind { options });
    kind::register(&ArrayKind { discover, options });
}

const ISER: &str = "iser://127.0.0.1/iqn.2026-11.org.x:a/0";
const OTHER: &str = r"iser://127.0.0.2/iqn.2026-11.org.x:b/0\,iser-path=tcp";
const PLAIN: &str = "hs+ip://127.0.0.4/disk";

#[test]
fn all_that_iser_leads_to_goes_as_the_array_says_unless_it_says_otherwise_itself() {
    register();
    for (said, path) in [(",iser-path=rdma", "Some(Rdma)"), ("", "None")] {
        let text = format!("array:data,member={ISER},member={OTHER},member={PLAIN},discover=iser://127.0.0.3{said}");
        let refused = text.parse::<StoreSpec>().unwrap().open().unwrap_err().to_string();
        for expected in [
            format!("iser://127.0.0.1/iqn.2026-11.org.x:a goes by {path}"),
            "iser://127.0.0.2/iqn.2026-11.org.x:b goes by Some(Tcp)".to_owned(),
            "hs+ip://127.0.0.4 goes by None".to_owned(),
            format!("iser://127.0.0.3 is asked by {path}"),
            format!("iser://127.0.0.3/iqn.2026-11.org.x:found goes by {path}"),
        ] {
            assert!(refused.contains(&expected), "{expected}: {refused}");
        }
    }
    // Both times twice: for its name, by which it is known over other wires, and as a member.
    let asked = ASKED.lock().unwrap().clone();
    for (server, expected) in [("iser://127.0.0.2/iqn.2026-11.org.x:b", "Some(Tcp)"), ("hs+ip://127.0.0.4", "None")] {
        let paths: Vec<&String> = asked.iter().filter(|(other, _)| other == server).map(|(_, path)| path).collect();
        assert!(paths.len() >= 4 && paths.iter().all(|path| *path == expected), "{server}: {paths:?}");
    }
}

/// As `sanwire array` has it, for which there is no array yet.
#[test]
fn members_of_which_an_array_is_made_go_as_is_said() {
    register();
    let opening = Opening { purpose: Purpose::Use, iser_path: Some("rdma".parse().unwrap()) };
    let members = Members::open_only(&[ISER.to_owned(), PLAIN.to_owned()], opening);
    let told: Vec<&str> = members.failures.iter().map(|(_, why)| why.as_str()).collect();
    assert!(told[0].contains("goes by Some(Rdma)") && told[1].contains("goes by None"), "{told:?}");
}
