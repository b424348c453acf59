// Says that the change form is open, for as long as somebody types now and then, and when it is left.
"use strict";
{
    const place = document.querySelector("[data-lock-editing]");
    if (place) {
        const form = place.closest("form");
        const url = location.href;
        const every = Math.max(Number(place.dataset.every), 1) * 1000;
        const idle = Number(place.dataset.idle) * 1000;
        let typed = Date.now();
        let sent = Date.now();
        let submitted = 0;

        const data = (...more) => {
            const fields = new FormData();
            for (const name of ["csrfmiddlewaretoken", "_lock_page"]) {
                fields.append(name, form.elements[name].value);
            }
            ["_lock_script", ...more].forEach((name) => fields.append(name, "yes"));
            return fields;
        };
        const renew = async () => {
            sent = Date.now();
            try {
                const answer = await fetch(url, {method: "POST", body: data()});
                const {problem} = await answer.json();
                place.textContent = problem;
                place.hidden = !problem;
            } catch {
                // Asked again next time. Saving says whether it is too late.
            }
        };
        const notice = () => {
            typed = Date.now();
            // Somebody comes back after a while.
            if (typed - sent > every) {
                renew();
            }
        };
        form.addEventListener("input", notice);
        form.addEventListener("change", notice);
        form.addEventListener("submit", (event) => {
            // A second click would save what the first has changed.
            if (Date.now() - submitted < 3000) {
                event.preventDefault();
            }
            submitted = Date.now();
        });
        setInterval(() => {
            if (Date.now() - typed < idle) {
                renew();
            }
        }, every);
        addEventListener("pagehide", () => {
            if (!submitted) {
                navigator.sendBeacon(url, data("_leave"));
            }
        });
        addEventListener("pageshow", (event) => {
            if (event.persisted) {
                submitted = 0;
                renew();
            }
        });
    }
}
