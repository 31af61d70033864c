'use strict';

// The code stands behind the '#' of the link, where no server and no log sees it.
const code = new URLSearchParams(location.hash.slice(1)).get('code');
const form = document.getElementById('form');
const told = document.getElementById('told');

if (code) {
  told.textContent = 'Choose a name and a password of at least 10 characters. A link for a user takes the name of that user.';
  form.hidden = false;
}

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const send = document.getElementById('send');
  send.disabled = true;
  const [name, password] = ['name', 'password'].map((id) => document.getElementById(id).value);
  try {
    const answer = await fetch('/api/v1/bootstrap', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ code, name, password }),
    });
    const body = await answer.json();
    if (answer.ok) {
      // The code is used up: nobody finds it in the history.
      history.replaceState(null, '', '/');
      form.hidden = true;
      told.textContent =
        `Done: ${body.name} has this password, and is logged in here, as ${body.role}, for twelve hours. ` +
        'What the server is now: /api/v1/server. Programs log in by tokens: POST /api/v1/tokens.';
    } else {
      told.textContent = `Nothing was changed: ${body.detail} (${body.code})`;
    }
  } catch (error) {
    told.textContent = `No answer came: ${error.message}`;
  }
  send.disabled = false;
});
