-- Put where a script notes in the history how a hold ended: an entry of a stream, with the same fields each time, so
-- that Redis keeps their names once. By pcall: a right that is missing, a key of another type or a server without
-- streams is no reason to fail.
local LONGEST_KNOWN = 8192 -- in bytes: what others wrote beside a lock fills no server

-- What follows the key in XADD. known: 'FENCE LENGTH-OF-TOKEN TOKEN RECORD', as in meta. more: where it was released
-- or lost for how many ms its holder had waited, where the lease is over since how many ms, else who and why (JSON).
local function entry(name, how, known, more)
  return 'MAXLEN', '~', HISTORY, '*', 'name', name, 'end', how, 'known', string.sub(known, 1, LONGEST_KNOWN),
    'more', more
end

-- How a hold ended that nobody ended, and since how many ms it is over: its lease was to end then, as far as known.
local function how_over(ends, now)
  local over = now - (tonumber(ends) or now)
  -- The clock is read more than once.
  if over < -10 then
    return 'lost', ''
  end
  return 'lease over', whole(math.max(over, 0))
end

