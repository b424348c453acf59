-- Put before every script. In ms.
local CLAIM = 1000        -- how long the baton waits for the one it is made out to
local MEMORY = 60000      -- how late a copy of a request may arrive and still be recognised
local META_MARGIN = 60000 -- how much longer than a lease the last fence is known, at the least
local BATON = 'baton:'
local READERS, PERMITS = 'readers:', 'permits:' -- precede the number of a group that holds a lock together
local HOSTED = 'hosted:' -- precedes the token, beside the lock, of one who will wake nobody
local KEPT = 'kept:'     -- precedes the token of one that let the lock go before it may be free
local WHO = 'who:'       -- precedes the token of a waiter, in the field of its holder record

-- Quicker than what Redis makes of a number itself.
local function whole(number)
  return string.format('%d', number)
end
