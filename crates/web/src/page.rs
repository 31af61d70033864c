//! Lists in pages.

use serde::{Deserialize, Serialize};
use std::str::FromStr;
use utoipa::{IntoParams, ToSchema};

use crate::problem::Problem;

/// Items of a page when it is not said how many.
const LIMIT_DEFAULT: u16 = 100;

/// Items of a page at the most.
const LIMIT_MAX: u16 = 1000;

/// Which part of a list is wanted.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Begin behind this item: what `next` of the page before says.
    after: Option<String>,
    /// As many items at the most, 1 to 1000; 100 when it is not said.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
}

/// A part of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// The items, in the order of their keys.
    items: Vec<T>,
    /// Give this as `after` for the next page; null: this is the last one.
    next: Option<String>,
    /// How many items there are now in all pages together.
    total: usize,
}

impl PageQuery {
    /// The part that is wanted of these items, which each have another key.
    ///
    /// # Errors
    /// A problem when it is not possible.
    pub(crate) fn cut<T, K: Ord + FromStr + ToString>(
        self,
        mut items: Vec<T>,
        key: impl Fn(&T) -> K,
    ) -> Result<Page<T>, Problem> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::invalid(format!("limit: a page has 1 to {LIMIT_MAX} items")));
        }
        let after = self.after.map(|text| text.parse::<K>().map_err(|_| wrong_place())).transpose()?;
        items.sort_by_cached_key(&key);
        let (total, limit) = (items.len(), usize::from(limit));
        let first = after.map_or(0, |after| items.partition_point(|item| key(item) <= after));
        let has_more = total - first > limit;
        let items: Vec<T> = items.into_iter().skip(first).take(limit).collect();
        let next = items.last().filter(|_| has_more).map(|last| key(last).to_string());
        Ok(Page { items, next, total })
    }
}

fn wrong_place() -> Problem {
    Problem::invalid("after: give what `next` of the page before says")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(after: Option<&str>, limit: Option<u16>) -> Result<(Vec<u32>, Option<String>), String> {
        let query = PageQuery { after: after.map(str::to_owned), limit };
        let page = query.cut((0..250).rev().collect(), |number: &u32| *number);
        page.map(|page| (page.items, page.next)).map_err(|problem| problem.detail)
    }

    #[test]
    fn pages_together_are_the_whole_list() {
        let (mut all, mut after, mut pages) = (vec![], None, 0);
        loop {
            let (items, next) = cut(after.as_deref(), None).unwrap();
            all.extend(items);
            pages += 1;
            let Some(next) = next else { break };
            after = Some(next);
        }
        assert_eq!((all, pages), ((0..250).collect(), 3));
    }

    #[test]
    fn the_item_behind_which_a_page_begins_may_be_gone() {
        let query = PageQuery { after: Some("2".into()), limit: Some(2) };
        assert_eq!(query.cut(vec![5, 1, 4, 3], |number| *number).unwrap().items, [3, 4]);
    }

    #[test]
    fn what_is_no_part_of_a_list_is_refused() {
        assert!(cut(None, Some(0)).is_err() && cut(None, Some(1001)).is_err() && cut(Some("x"), None).is_err());
        assert_eq!(cut(Some("249"), Some(1000)).unwrap(), (vec![], None));
    }
}
