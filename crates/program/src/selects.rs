//! Works around a fault of wasmi 2.0.0: of a `select` whose condition is that a local variable is 0, or is not, it may compile one that
//! depends on the value which was made before, since it takes the comparison back and keeps its register. An empty block between
//! the two has it let the comparison be. A block takes no fuel.

use std::borrow::Cow;

use wasmparser::{FunctionBody, Operator, Parser, Payload};

use crate::error::LoadError;

/// `block`, without a result, and `end`.
const EMPTY_BLOCK: [u8; 3] = [0x02, 0x40, 0x0b];
/// The number of the section of code.
const CODE: u8 = 10;

/// The same module with an empty block before each `select`. It has been validated.
///
/// # Errors
/// It is no module after all.
pub(crate) fn set_apart(module: &[u8]) -> Result<Cow<'_, [u8]>, LoadError> {
    let mut changed = module.get(..8).unwrap_or_default().to_vec();
    let (mut code, mut left, mut has_selects) = (vec![], 0, false);
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::CodeSectionStart { count, .. } => {
                (code, left) = (vec![], count);
                push_number(&mut code, count);
                if count == 0 {
                    push_section(&mut changed, CODE, &code);
                }
            }
            Payload::CodeSectionEntry(body) => {
                let selects = selects(&body)?;
                has_selects |= !selects.is_empty();
                push_body(&mut code, module, &body, &selects);
                left -= 1;
                if left == 0 {
                    push_section(&mut changed, CODE, &code);
                }
            }
            // They say nothing that counts.
            Payload::CustomSection(_) => {}
            part => {
                if let Some((number, range)) = part.as_section() {
                    push_section(&mut changed, number, &module[range]);
                }
            }
        }
    }
    Ok(if has_selects { Cow::Owned(changed) } else { Cow::Borrowed(module) })
}

/// Where they are in the module.
fn selects(body: &FunctionBody<'_>) -> Result<Vec<usize>, LoadError> {
    let mut selects = vec![];
    for operator in body.get_operators_reader()?.into_iter_with_offsets() {
        let (operator, at) = operator?;
        if matches!(operator, Operator::Select | Operator::TypedSelect { .. }) {
            selects.push(at);
        }
    }
    Ok(selects)
}

fn push_body(code: &mut Vec<u8>, module: &[u8], body: &FunctionBody<'_>, selects: &[usize]) {
    push_number(code, (body.range().len() + EMPTY_BLOCK.len() * selects.len()) as u32);
    let mut from = body.range().start;
    for at in selects {
        code.extend_from_slice(&module[from..*at]);
        code.extend_from_slice(&EMPTY_BLOCK);
        from = *at;
    }
    code.extend_from_slice(&module[from..body.range().end]);
}

fn push_section(module: &mut Vec<u8>, number: u8, section: &[u8]) {
    module.push(number);
    push_number(module, section.len() as u32);
    module.extend_from_slice(section);
}

/// As unsigned LEB128.
fn push_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
