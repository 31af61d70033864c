//! What the labels of an array say, whoever has it in use.

use std::collections::BTreeMap;

use sanwire_array::{Arrangement, Standing};
use sanwire_core::Size;
use sanwire_remote::array::{Looked, Purpose};
use serde_json::{Value, json};

use super::super::array::{describe, shape};
use super::super::assembled::{check_options, look_at};
use crate::args::ArrayPlace;
use crate::output;

pub(super) fn print(place: &ArrayPlace, as_json: bool) -> anyhow::Result<()> {
    check_options("info")?;
    let looked = look_at(place, Purpose::Look)?;
    Ok(output::print(&match as_json {
        true => format!("{}\n", serde_json::to_string_pretty(&to_json(place, &looked))?),
        false => for_people(place, &looked),
    })?)
}

fn for_people(place: &ArrayPlace, looked: &Looked) -> String {
    let (table, geometry) = (looked.table(), looked.store.geometry());
    let rows = [
        ("array", place.name().to_owned()),
        ("identity", looked.identity()),
        ("size", format!("{} ({} bytes)", Size(geometry.length_bytes), geometry.length_bytes)),
        ("block", format!("{} bytes, {} on the medium", geometry.block_bytes, geometry.physical_block_bytes)),
        ("made of", shape(table)),
    ];
    let rows: String = rows.iter().map(|(key, value)| format!("{key:<18}{value}\n")).collect();
    let away = table.members.iter().zip(looked.found()).enumerate().filter(|(_, (_, found))| !**found);
    let away = away.map(|(number, (member, _))| (number, format!("{} (not found)", member.place)));
    rows + &describe(table, &away.collect::<BTreeMap<_, _>>())
}

/// Sizes in bytes.
fn to_json(place: &ArrayPlace, looked: &Looked) -> Value {
    let (table, geometry) = (looked.table(), looked.store.geometry());
    let chunk_bytes = match table.arrangement {
        Arrangement::Stripe { chunk_bytes } => Some(chunk_bytes),
        Arrangement::Concat => None,
    };
    let members = table.members.iter().zip(looked.found()).zip(1..);
    let members = members.map(|((member, found), number)| {
        let standing = match member.standing {
            Standing::In => "in",
            Standing::Out { is_whole: true, .. } => "new",
            Standing::Out { .. } => "out",
        };
        json!({
            "number": number,
            "standing": standing,
            "size_bytes": member.data_bytes,
            "store": member.place,
            "found": found,
        })
    });
    json!({
        "url": place.to_string(),
        "name": place.name(),
        "identity": looked.identity(),
        "size_bytes": geometry.length_bytes,
        "block_bytes": geometry.block_bytes,
        "physical_block_bytes": geometry.physical_block_bytes,
        "copies": table.copies,
        "chunk_bytes": chunk_bytes,
        "members": members.collect::<Vec<_>>(),
    })
}
