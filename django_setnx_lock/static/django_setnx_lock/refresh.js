// Loads the list of the locks anew every five seconds, if the operator so wants.
"use strict";
{
    const SECONDS = 5;
    const KEPT = "django_setnx_lock.refresh";
    const place = document.querySelector("[data-refresh]");
    if (place) {
        const box = document.createElement("input");
        box.type = "checkbox";
        box.id = "lock-refresh";
        box.checked = sessionStorage.getItem(KEPT) === "1";
        const label = document.createElement("label");
        label.append(box, ` ${place.dataset.refresh}`);
        place.append(" ", label);

        let timer;
        const plan = () => {
            clearTimeout(timer);
            // What nobody sees asks Redis for nothing. Nor is lost what the operator selects or types.
            const selected = document.querySelector(".action-select:checked, #searchbar:focus");
            if (box.checked && !document.hidden && !selected) {
                timer = setTimeout(() => location.reload(), SECONDS * 1000);
            }
        };
        document.querySelector("#changelist-form")?.addEventListener("change", plan);
        box.addEventListener("change", () => {
            sessionStorage.setItem(KEPT, box.checked ? "1" : "");
            plan();
        });
        document.addEventListener("visibilitychange", plan);
        document.querySelector("#searchbar")?.addEventListener("focus", plan);
        document.querySelector("#searchbar")?.addEventListener("blur", plan);
        plan();
    }
}
