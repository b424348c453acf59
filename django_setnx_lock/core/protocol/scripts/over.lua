-- Put where a script looks at a lock: over is the lease of a holder that is known yet, did not let go, and is not one
-- that was done with it. Its token stands for what was at the name.
if (kind == 'none' or how == 'over') and owner and #owner > 0 and holder and not has_let_go(meta)
    and string.sub(owner, 1, #KEPT) ~= KEPT then
  how, value = 'over', owner
end
