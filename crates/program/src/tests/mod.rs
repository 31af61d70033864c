mod answers;
mod decoded;
mod hostile;
mod kept;
mod modules;
mod selects;
mod stack;
mod support;
