mod answers;
mod hostile;
mod kept;
mod modules;
mod stack;
mod support;
